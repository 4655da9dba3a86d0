// Memory of one rank's parameters, computed from the flat layouts of its layers and the order in which its instruction
// list gathers values and reduces gradients. It follows the same steps as optim/flat/stage_parameters.h.
#pragma once
#include "optim/flat/flat_layout.h"
#include "partitioner/memory/placed_layers.h"

namespace shardline {

// Numbers of elements, including padding.
struct ParameterElements {
  int64_t values = 0, gradients = 0;                                // for the whole run
  int64_t trained = 0, frozen = 0;                                  // of the own shards; the former with states
  std::vector<std::pair<const ParamSpec*, int64_t>> trained_parts;  // `trained` by parameter, without padding
  int64_t most_gathered = 0;  // values that are gathered for a pass, at their peak
  int64_t most_open = 0;      // gradients that are being made or reduced, at their peak
};

// trained_parts points into the workload's spec.
ParameterElements parameter_elements(const PlacedLayers& placed, Coordinates at);

// The ranges of the rank's parameters that are gathered or reduced in one piece; a tied parameter has a range for each
// use. gradient_segments: those that are trained.
std::vector<Segment> value_segments(const PlacedLayers& placed, Coordinates at);
std::vector<Segment> gradient_segments(const PlacedLayers& placed, Coordinates at);

}  // namespace shardline
