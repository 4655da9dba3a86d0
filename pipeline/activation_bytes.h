// The bytes of activations that are alive on a stage, told from its list: the inputs of layers that are kept between
// forward and backward, and those that recomputing a group brings back. What ops keep inside a layer comes on top.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "pipeline/offload.h"
#include "pipeline/recompute.h"
#include "pipeline/schedule.h"

namespace shardline {

struct ActivationChoices {
  std::vector<Recompute> recompute;  // by layer of the model; empty: nothing
  OffloadOptions offload;
  bool operator==(const ActivationChoices&) const = default;
};

// The most bytes at a time; input_bytes: of each layer of the model and one microbatch.
int64_t peak_activation_bytes(const Schedule& schedule, int stage, const std::vector<std::vector<int>>& layers_of_chunk,
                              const ActivationChoices& choices, const std::vector<int64_t>& input_bytes);

// Where (microbatch, chunk) runs its BackwardInput in a stage's list.
std::map<std::pair<int, int>, size_t> backward_instructions(const std::vector<Instruction>& list);

// Counts the same while a run goes on.
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
