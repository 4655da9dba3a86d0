#include "optim/update/cuda/cuda_updates.h"

#include <ATen/ops/empty.h>

#include "core/cuda/current_stream.h"
#include "core/error.h"
#include "optim/update/cuda/update_launches.h"

namespace shardline::cuda {
namespace {

float* floats(const at::Tensor& t) {
  SL_ASSERT(t.is_contiguous() && t.scalar_type() == at::kFloat, "a kernel of the optimizer takes fp32 ranges, not ",
            t.scalar_type(), " with strides ", t.strides());
  return t.mutable_data_ptr<float>();
}

void squares_of(const at::Tensor& gradient, const at::Tensor& words) {
  add_exact_squares(floats(gradient), gradient.numel(), words.mutable_data_ptr<int64_t>(), current_stream(gradient));
}

at::Tensor factor_of(const at::Tensor& words, double scale, double most) {
  const at::Tensor factor = at::empty({}, words.options().dtype(at::kFloat));
  clip_factor({.words = words.const_data_ptr<int64_t>(), .scale = scale, .most = most, .factor = floats(factor)},
              current_stream(words));
  return factor;
}

void step_of(const std::vector<AdamTensors>& all, AdamStep step, const at::Tensor& device_factor) {
  if (all.empty()) return;
  Number type = Number::fp32;
  std::vector<AdamRange> ranges;
  for (const AdamTensors& range : all) {
    if (range.rounded.defined()) type = range.rounded.scalar_type() == at::kHalf ? Number::fp16 : Number::bf16;
    ranges.push_back({.values = floats(range.values),
                      .gradients = floats(range.gradients),
                      .first = floats(range.first),
                      .second = floats(range.second),
                      .rounded = range.rounded.defined() ? range.rounded.mutable_data_ptr() : nullptr,
                      .count = range.values.numel(),
                      .decays = range.decays});
  }
  if (device_factor.defined()) step.device_factor = floats(device_factor);
  adam_step(ranges, step, type, current_stream(all.front().values));
}

}  // namespace

const DeviceUpdates& updates() {
  static const DeviceUpdates kUpdates = {squares_of, factor_of, step_of};
  return kUpdates;
}

}  // namespace shardline::cuda
