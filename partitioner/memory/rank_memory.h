// The memory that each rank of a layout will use, computed from the parameters it stores, the activations of its
// instruction list and the messages between stages. The program counts the same bytes while it runs
// (core/memory/caching_allocator.h).
#pragma once
#include <vector>

#include "partitioner/memory/placed_layers.h"
#include "pipeline/activations/activation_bytes.h"

namespace shardline {

struct MemoryBytes {
  double weights = 0, gradients = 0, optimizer = 0;
  double activations = 0;    // kept between instructions, at their peak
  double communication = 0;  // borders on their way between stages, and what an accelerator's communicators take
  double workspace = 0;      // in use while layers run, beyond that, at the worst time; and an accelerator's runtime
  double host = 0;           // states in the host's memory; not part of the total
  double total() const { return weights + gradients + optimizer + activations + communication + workspace; }
};

std::vector<MemoryBytes> memory_by_rank(const Cluster& cluster, const PlacedLayers& placed);
// By stage, of its first rank: no other one has larger parts of what the T ranks or the replicas share.
std::vector<MemoryBytes> memory_by_stage(const Cluster& cluster, const PlacedLayers& placed);

// Activations and messages of a stage's ranks whose layers take layer_bytes `layers`. held: border_bytes_held of the
// stage.
ActivationPeak activation_peak(const PlacedLayers& placed, int stage, const std::vector<LayerBytes>& layers,
                               const std::vector<int64_t>& held);
// The largest border at the end of a chunk, for every message that a stage holds; by stage and instruction.
std::vector<std::vector<int64_t>> border_bytes_held(const PlacedLayers& placed);

// Weights, gradients and states of a layer on the first rank, without padding and without what is whole for a pass: no
// rank that holds the layer uses less. beside: the name of a layer on the same rank, which holds the values and states
// of parameters that are tied to its own; each use has gradients of its own.
double least_state_bytes(const Workload& workload, const Layout& layout, const LayerSpec& layer,
                         const std::string& beside = "");

// What an accelerator's runtime (workspace) and its communicators (communication) take; nothing on CPUs.
MemoryBytes device_bytes(const Cluster& cluster, const Layout& layout);

}  // namespace shardline
