#include "optim/update/gradient_norm.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <cstring>
#include <mutex>

#include "optim/update/exact_sum.h"

namespace shardline {
namespace {

// Elements of a parameter in a small sum, counted from its start; shards never divide one.
constexpr int64_t kLeaf = 16;
static_assert(FlatLayout::kAlignment % kLeaf == 0);

template <typename T>
double leaf(const T* g) {
  double lanes[4] = {};
  for (int64_t i = 0; i < kLeaf; i += 4)
    for (int64_t lane = 0; lane < 4; ++lane) lanes[lane] += double(g[i + lane]) * double(g[i + lane]);
  return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

void add_squares(const at::Tensor& gradient, ExactSum& total) {
  // An accelerator computes the small sums itself.
  const at::Tensor leaves =
      gradient.is_cpu() ? gradient : gradient.to(at::kDouble).square().view({-1, kLeaf}).sum(1).cpu();
  std::mutex mutex;
  AT_DISPATCH_FLOATING_TYPES(leaves.scalar_type(), "add_squares", [&] {
    const auto* g = leaves.const_data_ptr<scalar_t>();
    const int64_t count = gradient.numel() / kLeaf;
    at::parallel_for(0, count, 1 << 12, [&](int64_t begin, int64_t end) {
      ExactSum mine;
      for (int64_t i = begin; i < end; ++i) mine.add(gradient.is_cpu() ? leaf(g + i * kLeaf) : double(g[i]));
      const std::scoped_lock lock(mutex);
      total.add(mine);
    });
  });
}

}  // namespace

double gradient_norm(const StageParameters& parameters) {
  ExactSum squares;
  for (const auto& gradient : parameters.counted_gradients()) add_squares(gradient, squares);
  const auto words = at::zeros({ExactSum::kWords}, at::kLong);
  std::memcpy(words.data_ptr<int64_t>(), squares.words().data(), sizeof squares.words());
  parameters.groups().world->all_reduce(words, {.what = "gradient norm"})->wait();
  return std::sqrt(ExactSum::of_words(words.data_ptr<int64_t>()).value());
}

double clip_factor(double norm, double max_norm) {
  return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
}

}  // namespace shardline
