// The heads that our attention kernels for GPUs support. The kernels include this file, so it has nothing of torch.
#pragma once
#include <cstdint>

namespace shardline {

constexpr int64_t kWidestHead = 128;
constexpr int64_t kMostHeads = 65535;  // of all samples: the blocks of a launch in one direction

}  // namespace shardline
