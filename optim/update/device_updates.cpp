#include "optim/update/cuda/device_updates.h"

#include <array>
#include <atomic>

#ifdef SHARDLINE_CUDA
#include "optim/update/cuda/cuda_updates.h"
#endif

namespace shardline {
namespace {

std::array<std::atomic<const DeviceUpdates*>, at::COMPILE_TIME_MAX_DEVICE_TYPES> chosen_updates;

}  // namespace

const DeviceUpdates* updates_for(at::Device device, at::ScalarType trained) {
  if (trained != at::kFloat) return nullptr;
  if (const DeviceUpdates* updates = chosen_updates[static_cast<size_t>(device.type())]) return updates;
#ifdef SHARDLINE_CUDA
  if (device.is_cuda()) return &cuda::updates();
#endif
  return nullptr;
}

void use_updates(at::DeviceType device, const DeviceUpdates* updates) {
  chosen_updates[static_cast<size_t>(device)] = updates;
}

}  // namespace shardline
