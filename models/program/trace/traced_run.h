// One run of a function on tensors as calls on numbered values.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "models/program/graph.h"

namespace shardline {

// A tensor that the function has without being given it, such as a parameter of its module.
struct OwnedTensor {
  std::string name;
  GraphInput::Kind kind = GraphInput::Kind::parameter;
  at::Tensor tensor;
};

struct TracedRun {
  // Values are the arguments, the owned tensors, and then what calls make, in their order. A constant is a value of
  // its own at its first use.
  std::vector<at::Tensor> values;
  std::vector<GraphNode> calls;  // without modules
  std::vector<int> constants;    // values that no call makes and that nobody owns
  std::vector<int> results;      // what the function returns
};

// Runs the function. An operator that changes a tensor in place becomes one that returns the changed tensor. Throws a
// ConfigError that begins with `name` for what a graph cannot express: reading values of tensors, changing an argument,
// a parameter, a buffer, or a tensor of which there are views, results that no call makes, and gradients of the
// function's own.
TracedRun run_traced(const std::string& name, const std::vector<at::Tensor>& arguments,
                     const std::vector<OwnedTensor>& owned,
                     const std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>& run);

}  // namespace shardline
