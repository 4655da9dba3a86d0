// Computes the bytes of live activations on a stage from its list: what layers keep between forward and backward (a
// recomputed group keeps its input until it runs again), and the (X, dY) pairs that wait for BackwardWeight. The
// workspace of running layers and the borders in flight between stages are added to these.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core/model/model_spec.h"
#include "pipeline/activations/offload.h"
#include "pipeline/activations/recompute.h"
#include "pipeline/schedule/schedule.h"

namespace shardline {

struct ActivationChoices {
  std::vector<Recompute> recompute;  // by layer of the model; empty: nothing is recomputed
  OffloadOptions offload;
  bool on_accelerator = false;  // activations are offloaded as on accelerators (OffloadSpace)
  int first_with_backward = 0;  // layers before it run only forward and keep nothing
  bool operator==(const ActivationChoices&) const = default;
};

// What a layer keeps for one microbatch; `input` is the part of it that the previous layer produced.
struct LayerBytes {
  int64_t input = 0;
  KeptBytes kept;
  PassBytes passes;
};

// Peaks in bytes.
struct ActivationPeak {
  int64_t kept = 0;       // between instructions and layers; an exact count
  int64_t in_use = 0;     // including workspace while layers run
  int64_t total = 0;      // including messages
  int64_t offloaded = 0;  // in the host's buffers, which stores of other layers or groups may reuse
  bool operator==(const ActivationPeak&) const = default;
};

// layers: by layer of the model. message_bytes: bytes held for messages, by instruction of the stage.
ActivationPeak peak_activation_bytes(const Schedule& schedule, int stage,
                                     const std::vector<std::vector<int>>& layers_of_chunk,
                                     const ActivationChoices& choices, const std::vector<LayerBytes>& layers,
                                     const std::vector<int64_t>& message_bytes);

// The index in a stage's list of the BackwardInput of each (microbatch, chunk).
std::map<std::pair<int, int>, size_t> backward_instructions(const std::vector<Instruction>& list);

// Counts the same bytes at run time.
class LiveBytes {
 public:
  void add(int64_t bytes) { peak_ = std::max(peak_, now_ += bytes); }
  void remove(int64_t bytes) { now_ -= bytes; }
  int64_t now() const { return now_; }
  int64_t peak() const { return peak_; }

 private:
  int64_t now_ = 0, peak_ = 0;
};

}  // namespace shardline
