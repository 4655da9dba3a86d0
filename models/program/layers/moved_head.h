// The product of a language model's head and its cross entropy as one op.
#pragma once
#include <cstddef>
#include <optional>

#include "models/program/program.h"

namespace shardline {

// The last layer without the product that makes the logits of its loss: what selects and arranges rows of the logits
// does this with the rows of the product's input, whose features are in the place of the classes. The loss then takes
// the product block by block (tensor_parallel/ops/cross_entropy.h), so that the logits never exist as a whole.
struct MovedHead {
  Graph graph;
  GraphPart part;     // ProgramLossTerm::input has features
  size_t weight = 0;  // places in ProgramLayer::parameters
  std::optional<size_t> bias = {};
};

// Nothing if the loss is not one cross entropy over rows of a product with a parameter, or if the part does something
// else with these logits. part: the program's last layer.
std::optional<MovedHead> moved_head(const Program& program, const GraphPart& part);

}  // namespace shardline
