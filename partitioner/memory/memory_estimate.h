// Bytes of every rank by class, from the schedule's own lists, and what to change when they do not fit.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "partitioner/layout/layout.h"

namespace shardline {

struct MemoryBytes {
  double weights = 0, gradients = 0, optimizer = 0;
  double activations = 0;    // at their peak
  double communication = 0;  // borders under way, gathered weights and rows, the library's buffers
  double workspace = 0;      // of the op that needs most, and what the device's runtime takes
  double host = 0;           // outside the device: states in its host's memory; not in the total
  double total() const { return weights + gradients + optimizer + activations + communication + workspace; }
};

struct StageMemory {
  MemoryBytes bytes;
  int peak_instruction = -1;  // index in the stage's list at which most activations live
};

// By stage, for the tensor-parallel rank with most; replicas are equal.
std::vector<StageMemory> estimate_memory(const Workload& workload, const Cluster& cluster, const Layout& layout,
                                         const Schedule& schedule, const std::vector<int>& chunk_of_layer);

// What an accelerator's runtime (workspace) and its communicators (communication) take; nothing on CPUs.
MemoryBytes device_bytes(const Cluster& cluster, const Layout& layout);

// Weights, gradients and optimizer states of a layer on the tensor-parallel rank with most. States on the host take
// with them the values that are trained, a copy of their gradients, and one of the values in half precision.
MemoryBytes state_bytes(const Workload& workload, const Layout& layout, const LayerSpec& layer);

// Activations of one microbatch in a layer of the model that wait on the host between its forward and its backward,
// where the schedule gives them the time.
double moved_bytes(const Workload& workload, const Layout& layout, size_t layer);

// Those that stay on the device in any case: of a layer, and by chunk.
double kept_bytes(const Workload& workload, const Layout& layout, size_t layer);
std::vector<double> kept_by_chunk(const Workload& workload, const Layout& layout,
                                  const std::vector<int>& chunk_of_layer, int chunks);

struct MemoryFit {
  bool fits = false;
  int stage = 0;  // with the most bytes
  double bytes = 0, limit = 0;
  std::string why;  // "stage 0 needs 51.2 GiB of 40.0: weights 5.1, ..."
};
MemoryFit memory_fit(const Cluster& cluster, const std::vector<StageMemory>& stages);

// The cheapest change with which the layout fits at the same global batch: smaller microbatches and more of them first,
// then recomputing, then sharding, then moving to the host; alone where that is enough, otherwise together in this
// order. Empty: nothing helps.
struct MemoryAdvice {
  Layout layout;
  std::string text;  // "microbatches of 2 instead of 4; recompute each"
};
std::optional<MemoryAdvice> advice_to_fit(const Workload& workload, const Cluster& cluster, const Layout& layout);

}  // namespace shardline
