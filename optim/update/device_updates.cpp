#include "optim/update/cuda/device_updates.h"

#include <atomic>

#include "core/enum_array.h"

#ifdef SHARDLINE_CUDA
#include "optim/update/cuda/cuda_updates.h"
#endif

namespace shardline {
namespace {

EnumArray<at::DeviceType, std::atomic<const DeviceUpdates*>, at::COMPILE_TIME_MAX_DEVICE_TYPES> chosen_updates;

}  // namespace

const DeviceUpdates* updates_for(at::Device device, at::ScalarType trained) {
  if (trained != at::kFloat) return nullptr;
  if (const DeviceUpdates* updates = chosen_updates[device.type()]) return updates;
#ifdef SHARDLINE_CUDA
  if (device.is_cuda()) return &cuda::updates();
#endif
  return nullptr;
}

void use_updates(at::DeviceType device, const DeviceUpdates* updates) {
  chosen_updates[device] = updates;
}

}  // namespace shardline
