// Which layers' activations are kept between forward and backward, and which are recomputed.
//
// A recomputed group of layers keeps only the first one's input: its forward pass runs without an autograd graph, and
// again with one during BackwardInput. Every group is recomputed, even the last one of a stage, whose backward may
// follow immediately, so that what a stage keeps does not depend on the schedule.
#pragma once
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace shardline {

struct Recompute {
  enum class What {
    nothing,    // "none"
    attention,  // "selective": the attention core keeps only its input
    layers,     // "each", "group_N", "contiguous": groups of consecutive layers keep only their input
  };
  static constexpr int kAll = std::numeric_limits<int>::max();

  What what = What::nothing;
  int group = 1;  // maximum number of layers of one chunk in a group; kAll: unlimited
  bool operator==(const Recompute&) const = default;
};

std::string to_string(const Recompute& recompute);
// Empty if the text does not name a strategy; "group_1" is "each".
std::optional<Recompute> recompute_strategy(const std::string& name);

// Layers first to first + count - 1 of a chunk, numbered within the chunk. A layer that is not recomputed as a whole is
// a group by itself.
struct LayerGroup {
  size_t first = 0, count = 1;
  bool recomputed = false;
  bool has_backward = true;  // false: only the forward pass runs, and nothing is kept
  bool operator==(const LayerGroup&) const = default;
};

// Groups consecutive layers with the same strategy, from the front. by_layer: one for each layer of the model; empty:
// nothing is recomputed. Each layer before first_with_backward is a group by itself.
std::vector<LayerGroup> layer_groups(const std::vector<int>& layers_of_chunk, const std::vector<Recompute>& by_layer,
                                     int first_with_backward = 0);

}  // namespace shardline
