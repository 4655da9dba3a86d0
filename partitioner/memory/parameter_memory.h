// Memory of one rank's parameters, computed from the flat layouts of its layers and the order in which its instruction
// list gathers values and reduces gradients, following the same steps as optim/flat/stage_parameters.h.
#pragma once
#include "optim/flat/flat_layout.h"
#include "partitioner/memory/placed_layers.h"

namespace shardline {

// Elements, padding included.
struct ParameterElements {
  int64_t values = 0, gradients = 0;                                // always there
  int64_t trained = 0;                                              // with optimizer states
  std::vector<std::pair<const ParamSpec*, int64_t>> trained_parts;  // of it, without padding: of every parameter
  int64_t most_gathered = 0;  // values that are whole for a pass, at the worst time
  int64_t most_open = 0;      // gradients that are made and reduced, at the worst time
};

// The parts point into the workload's spec.
ParameterElements parameter_elements(const PlacedLayers& placed, Coordinates at);

// The ranges of its gradients that are reduced in one piece, a tied parameter's for each of its uses.
std::vector<Segment> gradient_segments(const PlacedLayers& placed, Coordinates at);

}  // namespace shardline
