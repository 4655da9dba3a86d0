// Applies the kernels of this folder to tensors.
#pragma once
#include "optim/update/cuda/device_updates.h"

namespace shardline::cuda {

const DeviceUpdates& updates();

}  // namespace shardline::cuda
