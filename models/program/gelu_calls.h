// GELUs that a program spells out.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "models/program/graph.h"

namespace shardline {

// Replaces calls that together compute x (1 + erf(x / sqrt(2))) / 2, or its approximation by tanh, by aten::gelu, if
// nothing else reads their intermediate results. Results differ only by rounding. constants: the tensors of the graph's
// constant inputs, by name.
void make_gelu_calls(Graph& graph, const std::map<std::string, at::Tensor>& constants);

}  // namespace shardline
