// Parameters split over ranks that are threads, and what these ranks must agree on: common code for tests of the
// tensor-parallel ops.
#pragma once
#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <mutex>
#include <vector>

#include "core/comm/threads_communicator.h"
#include "core/model/layer.h"
#include "tensor_parallel/ops/collectives.h"

namespace shardline {

// Rank t's part of `whole`; a view.
inline at::Tensor part_of(const ParamSpec& spec, const at::Tensor& whole, int t, int t_degree) {
  if (spec.split_dim < 0) return whole;
  const Range range = spec.split(t, t_degree);
  return whole.narrow(spec.split_dim, range.begin, range.length);
}

// A parameter with rank t's part of `whole` and a gradient of zeros.
inline Parameter parameter_of(const ParamSpec& spec, const at::Tensor& whole, int t, int t_degree) {
  const auto value = part_of(spec, whole, t, t_degree).detach().clone(at::MemoryFormat::Contiguous);
  return {spec.name, &spec, value, at::zeros_like(value)};
}

// The largest difference; infinite if the sizes differ or a value is NaN.
inline double difference(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) return std::numeric_limits<double>::infinity();
  if (a.numel() == 0) return 0;
  const double worst = (a.detach() - b.detach()).abs().max().item<double>();
  return std::isnan(worst) ? std::numeric_limits<double>::infinity() : worst;
}

// The largest value that a rank returns. Assertions belong outside, because the test library supports only one thread.
inline double worst_over_ranks(int ranks, const std::function<std::vector<double>(Communicator&)>& fn) {
  double worst = 0;
  std::mutex mutex;
  run_ranks(ranks, [&](CommunicatorPtr world) {
    const auto mine = fn(*world);
    std::scoped_lock lock(mutex);
    for (double value : mine) worst = std::max(worst, value);
  });
  return worst;
}

// 0 if `holds`, otherwise infinite: lets a condition count as a difference.
inline double unless(bool holds) {
  return holds ? 0 : std::numeric_limits<double>::infinity();
}

}  // namespace shardline
