// Limits of the heads that our attention kernels for GPUs support. Kernels include this file, so it must not use torch.
#pragma once
#include <cstdint>

namespace shardline {

constexpr int64_t kWidestHead = 128;
constexpr int64_t kMostHeads = 65535;  // over all samples: the maximum number of blocks of a launch in one direction

}  // namespace shardline
