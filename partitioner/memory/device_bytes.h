// What a rank on an accelerator uses besides its tensors: the runtime, and NCCL's memory for each communicator with
// more than one rank. These are estimates; zero on CPUs.
#pragma once
#include "partitioner/memory/placed_layers.h"

namespace shardline {

inline constexpr double kCommunicatorBytes = 128 << 20;  // NCCL's channels

struct DeviceBytes {
  double runtime = 0;
  double communicators = 0;  // for the groups of the mesh
  double later = 0;          // for groups that are created with the parameters or before the first step
  double total() const { return runtime + communicators + later; }
};

// The bytes on each rank of the stage.
DeviceBytes device_bytes(const PlacedLayers& placed, int stage);
// A lower bound for every stage, whichever layers it has.
DeviceBytes least_device_bytes(const Layout& layout);

}  // namespace shardline
