// Memory of one rank's parameters, computed from the flat layouts of its layers and the order in which its instruction
// list gathers values and reduces gradients. It mirrors the steps of optim/flat/stage_parameters.h.
#pragma once
#include "optim/flat/flat_layout.h"
#include "partitioner/memory/placed_layers.h"

namespace shardline {

// Numbers of elements, including padding.
struct ParameterElements {
  int64_t values = 0, gradients = 0;                                // held during the whole run
  int64_t trained = 0, frozen = 0;                                  // in this rank's shards; trained ones have states
  std::vector<std::pair<const ParamSpec*, int64_t>> trained_parts;  // `trained` by parameter, excluding padding
  int64_t most_gathered = 0;                                        // peak of values gathered for a pass
  int64_t most_open = 0;                                            // peak of gradients being computed or reduced
};

// trained_parts points into the workload's spec.
ParameterElements parameter_elements(const PlacedLayers& placed, Coordinates at);

// The ranges of the rank's parameters that are gathered or reduced in one piece. A tied parameter has one range per
// use. gradient_segments: the trained ones.
std::vector<Segment> value_segments(const PlacedLayers& placed, Coordinates at);
std::vector<Segment> gradient_segments(const PlacedLayers& placed, Coordinates at);

}  // namespace shardline
