#include "optim/update/gradient_norm.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <cstring>
#include <mutex>

#include "core/numbers/exact_sum.h"
#include "core/numbers/norm_leaf.h"

namespace shardline {
namespace {

static_assert(FlatLayout::kAlignment % kNormLeaf == 0);

void add_squares(const at::Tensor& gradient, ExactSum& total) {
  // An accelerator adds up the leaves itself; their sums are few.
  const at::Tensor leaves =
      gradient.is_cpu() ? gradient : gradient.to(at::kDouble).square().view({-1, kNormLeaf}).sum(1).cpu();
  std::mutex mutex;
  AT_DISPATCH_FLOATING_TYPES(leaves.scalar_type(), "add_squares", [&] {
    const auto* g = leaves.const_data_ptr<scalar_t>();
    const int64_t count = gradient.numel() / kNormLeaf;
    at::parallel_for(0, count, 1 << 12, [&](int64_t begin, int64_t end) {
      ExactSum mine;
      for (int64_t i = begin; i < end; ++i) mine.add(gradient.is_cpu() ? norm_leaf(g + i * kNormLeaf) : double(g[i]));
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
