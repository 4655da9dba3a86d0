#include "core/model/parameter_init.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>

#include "core/device/accelerator.h"
#include "core/numbers/philox.h"

namespace shardline {
namespace {

constexpr uint32_t kInitOp = 65535;  // no dropout uses this number

// Where the local elements are in the logical parameter: `outer` runs of `inner` consecutive ones.
struct Runs {
  int64_t outer = 1, inner = 1, logical_stride = 1, offset = 0;
};

Runs local_runs(const ParamSpec& spec, int t, int t_degree) {
  Runs runs;
  if (spec.split_dim < 0) return {1, spec.numel(), spec.numel(), 0};
  int64_t below = 1;
  for (int64_t dim = 0; dim < std::ssize(spec.shape); ++dim)
    (dim < spec.split_dim ? runs.outer : below) *= dim == spec.split_dim ? 1 : spec.shape[dim];
  const Range mine = spec.split(t, t_degree);
  runs.inner = mine.length * below;
  runs.offset = mine.begin * below;
  runs.logical_stride = spec.shape[spec.split_dim] * below;
  return runs;
}

}  // namespace

void init_parameter(Parameter& parameter, uint32_t number, uint64_t seed, int t, int t_degree) {
  const ParamSpec& spec = *parameter.spec;
  if (spec.init.kind != Init::Kind::normal) {
    parameter.value.fill_(spec.init.kind == Init::Kind::ones ? 1.0 : 0.0);
    return;
  }
  const Runs runs = local_runs(spec, t, t_degree);
  const RandomStream stream{.seed = seed, .op = kInitOp, .step = number};
  const bool elsewhere = is_accelerator(parameter.value);
  auto values = elsewhere ? at::empty(parameter.value.sizes(), parameter.value.scalar_type()) : parameter.value;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, values.scalar_type(), "init_parameter", [&] {
    auto* to = values.data_ptr<scalar_t>();
    at::parallel_for(0, runs.outer * runs.inner, 4096, [&](int64_t begin, int64_t end) {
      std::array<double, 512> normals;
      for (int64_t i = begin; i < end;) {
        const int64_t in_run = i % runs.inner;
        const int64_t count = std::min({end - i, runs.inner - in_run, std::ssize(normals)});
        const int64_t logical = i / runs.inner * runs.logical_stride + runs.offset + in_run;
        random_normals(stream, logical, count, normals.data());
        for (int64_t j = 0; j < count; ++j) to[i + j] = scalar_t(spec.init.std * normals[j]);
        i += count;
      }
    });
  });
  if (elsewhere) parameter.value.copy_(values);
}

}  // namespace shardline
