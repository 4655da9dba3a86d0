// The memory that each rank of a layout will use, computed from the parameters it stores, the activations of its
// instruction list and the messages between stages. The program counts the same bytes at run time
// (core/memory/caching_allocator.h).
#pragma once
#include <functional>
#include <vector>

#include "partitioner/memory/placed_layers.h"
#include "pipeline/activations/activation_bytes.h"

namespace shardline {

struct MemoryBytes {
  double weights = 0, gradients = 0, optimizer = 0;
  double activations = 0;    // kept between instructions, at the peak
  double communication = 0;  // messages between stages, and the communicators of an accelerator
  double workspace = 0;      // inputs of a step, extra bytes while layers run, and the runtime of an accelerator
  double host = 0;           // host memory of a rank on an accelerator; not part of the total
  double total() const;
};

// The classes that make up the total, as named in plans.
struct PlannedClass {
  const char* name;
  double MemoryBytes::*bytes;
};
inline constexpr PlannedClass kPlannedClasses[] = {{"weights", &MemoryBytes::weights},
                                                   {"gradients", &MemoryBytes::gradients},
                                                   {"optimizer", &MemoryBytes::optimizer},
                                                   {"activations", &MemoryBytes::activations},
                                                   {"communication", &MemoryBytes::communication},
                                                   {"workspace", &MemoryBytes::workspace}};

inline double MemoryBytes::total() const {
  double sum = 0;
  for (const auto& [name, bytes] : kPlannedClasses) sum += this->*bytes;
  return sum;
}

std::vector<MemoryBytes> memory_by_rank(const PlacedLayers& placed);
// As above, without the runtime and communicators of accelerators.
std::vector<MemoryBytes> tensor_bytes_by_rank(const PlacedLayers& placed);
// The memory of each stage's first rank, which has the largest part of what the T ranks or the replicas divide. (On
// GPUs, a rank whose part of the vocabulary is not a multiple of 8 may need 16 KiB more per hidden feature.)
std::vector<MemoryBytes> memory_by_stage(const PlacedLayers& placed);

// Activations and messages of a stage's ranks, with `layers` from layer_bytes and `held` from
// border_bytes_held.
ActivationPeak activation_peak(const PlacedLayers& placed, int stage, const std::vector<LayerBytes>& layers,
                               const std::vector<int64_t>& held);
// By stage and instruction: the bytes of the messages that a stage holds, each counted as the largest border between
// chunks.
std::vector<std::vector<int64_t>> border_bytes_held(const PlacedLayers& placed);

// Weights, gradients and states of a layer on the first rank, without padding and without values gathered for a pass: a
// lower bound for every rank that holds the layer. is_beside: whether another layer on the same rank holds the values
// and states of a parameter that is tied to one of its own; each use has its own gradients.
double least_state_bytes(const Workload& workload, const Layout& layout, const LayerSpec& layer,
                         const std::function<bool(const ParamSpec&)>& is_beside);

}  // namespace shardline
