// What a rank of an accelerator uses besides its tensors: the runtime, and NCCL's memory of each communicator of more
// than one rank. Estimates; nothing on CPUs.
#pragma once
#include "partitioner/memory/placed_layers.h"

namespace shardline {

inline constexpr double kCommunicatorBytes = 128 << 20;  // NCCL's channels

struct DeviceBytes {
  double runtime = 0;
  double communicators = 0;  // of the groups of the mesh
  double later = 0;          // of those that are made with the parameters and before the first step
  double total() const { return runtime + communicators + later; }
};

// Returns the bytes of each rank of the stage.
DeviceBytes device_bytes(const PlacedLayers& placed, int stage);
// Returns a lower bound for every stage, whichever layers it has.
DeviceBytes least_device_bytes(const Layout& layout);

}  // namespace shardline
