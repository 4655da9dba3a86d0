#include "optim/gradient_norm.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cmath>

namespace shardline {
namespace {

// In blocks of a fixed size, added in order: the same bits for any number of threads.
double squared_norm(const at::Tensor& gradient) {
  if (!gradient.is_cpu()) return gradient.to(at::kDouble).square().sum().item<double>();
  constexpr int64_t kBlock = 1 << 14;
  const int64_t blocks = (gradient.numel() + kBlock - 1) / kBlock;
  std::vector<double> sums(static_cast<size_t>(blocks));
  AT_DISPATCH_FLOATING_TYPES(gradient.scalar_type(), "squared_norm", [&] {
    const auto* g = gradient.const_data_ptr<scalar_t>();
    at::parallel_for(0, blocks, 8, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        double lanes[8] = {};
        const int64_t first = block * kBlock, last = std::min(first + kBlock, gradient.numel());
        int64_t i = first;
        for (; i + 8 <= last; i += 8)
          for (int64_t lane = 0; lane < 8; ++lane) lanes[lane] += double(g[i + lane]) * double(g[i + lane]);
        for (; i < last; ++i) lanes[0] += double(g[i]) * double(g[i]);
        for (double lane : lanes) sums[static_cast<size_t>(block)] += lane;
      }
    });
  });
  double sum = 0;
  for (double block : sums) sum += block;
  return sum;
}

}  // namespace

double gradient_norm(const StageParameters& parameters) {
  auto squares = at::zeros({parameters.logical_count()}, at::kDouble);
  auto* square = squares.data_ptr<double>();
  for (const auto& gradient : parameters.logical_gradients())
    if (gradient.counted) square[gradient.number] = squared_norm(gradient.parameter->grad);
  parameters.groups().mp->all_reduce(squares, {.what = "gradient norm"})->wait();
  double sum = 0;
  for (int64_t i = 0; i < squares.numel(); ++i) sum += square[i];
  return std::sqrt(sum);
}

double clip_factor(double norm, double max_norm) {
  return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
}

}  // namespace shardline
