#include "optim/update/gradient_norm.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <cstring>
#include <mutex>
#include <utility>

#include "core/device/accelerator.h"
#include "core/numbers/exact_sum.h"
#include "core/numbers/norm_leaf.h"
#include "optim/update/device_exact_sum.h"

namespace shardline {
namespace {

static_assert(FlatLayout::kAlignment % kNormLeaf == 0);

void add_squares(const at::Tensor& gradient, ExactSum& total) {
  std::mutex mutex;
  AT_DISPATCH_FLOATING_TYPES(gradient.scalar_type(), "add_squares", [&] {
    const auto* g = gradient.const_data_ptr<scalar_t>();
    at::parallel_for(0, gradient.numel() / kNormLeaf, 1 << 12, [&](int64_t begin, int64_t end) {
      ExactSum mine;
      for (int64_t i = begin; i < end; ++i) mine.add(norm_leaf(g + i * kNormLeaf));
      const std::scoped_lock lock(mutex);
      total.add(mine);
    });
  });
}

// As above, on an accelerator: adds up leaves in the same order, so their sums have the same bits.
at::Tensor leaves_of(const at::Tensor& gradient) {
  const at::Tensor squares = gradient.to(at::kDouble).square_().view({-1, kNormLeaf / 4, 4});
  at::Tensor lanes = squares.select(1, 0).clone();
  for (int64_t i = 1; i < kNormLeaf / 4; ++i) lanes.add_(squares.select(1, i));
  return (lanes.select(1, 0) + lanes.select(1, 1)).add_(lanes.select(1, 2) + lanes.select(1, 3));
}

double root_of(const at::Tensor& words) {
  return std::sqrt(ExactSum::of_words(words.const_data_ptr<int64_t>()).value());
}

ExactSum squares_on_device(const std::vector<at::Tensor>& gradients) {
  constexpr int64_t kBlock = int64_t{1} << 22;  // elements, which limits how many are in fp64 at a time
  DeviceExactSum total(gradients.front().device());
  std::vector<at::Tensor> leaves;
  int64_t waiting = 0;
  const auto add = [&] {
    total.add(at::cat(std::exchange(leaves, {})));
    waiting = 0;
  };
  for (const auto& gradient : gradients)
    for (const auto& block : gradient.split(kBlock)) {
      leaves.push_back(leaves_of(block));
      if ((waiting += leaves.back().numel()) >= kBlock / kNormLeaf) add();
    }
  if (!leaves.empty()) add();
  return total.on_host("gradient norm");
}

}  // namespace

GradientNorm::GradientNorm(const StageParameters& parameters)
    : kernels_(updates_for(parameters.device(), parameters.trained_type())),
      updates_on_host_(parameters.states_are_on_host()) {
  const auto gradients = parameters.counted_gradients();
  const RankGroups& groups = parameters.groups();
  words_ = at::zeros({ExactSum::kWords},
                     at::TensorOptions(at::kLong).device(kernels_ ? parameters.device() : at::Device(at::kCPU)));
  if (kernels_) {
    for (const auto& gradient : gradients) kernels_->add_exact_squares(gradient, words_);
    groups.device_world->all_reduce(words_, {.what = "gradient norm"})->wait();
    arriving_ = std::make_unique<HostValues>(words_);
    return;
  }
  ExactSum squares;
  if (!gradients.empty() && is_accelerator(gradients.front()))
    squares = squares_on_device(gradients);
  else
    for (const auto& gradient : gradients) add_squares(gradient, squares);
  std::memcpy(words_.data_ptr<int64_t>(), squares.words().data(), sizeof squares.words());
  groups.world->all_reduce(words_, {.what = "gradient norm"})->wait();
  known_ = root_of(words_);
}

double GradientNorm::value() {
  if (!known_) known_ = root_of(arriving_->get("gradient norm"));
  return *known_;
}

GradientFactor GradientNorm::factor(double scale, double max_norm) {
  if (kernels_ && !known_ && !updates_on_host_) return kernels_->clip_factor(words_, scale, max_norm);
  return clip_factor(value() / scale, max_norm) / scale;
}

double clip_factor(double norm, double max_norm) {
  return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
}

}  // namespace shardline
