#include "optim/update/cuda/cuda_updates.h"

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

void step_of(const std::vector<AdamTensors>& all, const AdamStep& step) {
  if (all.empty()) return;
  std::vector<AdamRange> ranges;
  for (const AdamTensors& range : all)
    ranges.push_back({floats(range.values), floats(range.gradients), floats(range.first), floats(range.second),
                      range.values.numel(), range.decays});
  adam_step(ranges, step, current_stream(all.front().values));
}

}  // namespace

const DeviceUpdates& updates() {
  static const DeviceUpdates kUpdates = {squares_of, step_of};
  return kUpdates;
}

}  // namespace shardline::cuda
