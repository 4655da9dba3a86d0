// One run of a function on tensors as calls on numbered values.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "models/program/graph.h"
#include "models/program/trace/size_formula.h"

namespace shardline {

// A tensor that the function has without being given it, such as a parameter of its module.
struct OwnedTensor {
  std::string name;
  GraphInput::Kind kind = GraphInput::Kind::parameter;
  at::Tensor tensor;
  std::vector<std::string> other_names = {};  // of modules that share it
};

struct TracedFunction {
  std::string name;  // begins messages: "model surrogate"
  // Arguments by name, with other values for another variant. One has the sizes [batch, length], and if there are
  // targets, one [batch, target].
  std::vector<std::string> argument_names;
  int rows = 0, target_rows = -1;  // the numbers of these arguments
  std::function<std::vector<at::Tensor>(const BatchSize& size, int variant)> arguments;
  std::vector<BatchSize> further_sizes;  // at which it must be the same
  std::vector<OwnedTensor> owned;
  std::map<std::string, std::string> module_types;  // by path
  std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)> run;
};

struct TracedRun {
  // Values are the arguments, the owned tensors, and then what calls make, in their order. A constant is a value of
  // its own at its first use.
  std::vector<at::Tensor> values;
  std::vector<GraphNode> calls;
  std::vector<int> constants;  // values that no call makes and that nobody owns
  std::vector<int> results;    // what the function returns
};

// Runs the function. An operator that changes a tensor in place becomes one that returns the changed tensor. A call
// belongs to the module of the parameter that it takes, and otherwise to that of the call before. Of modules that share
// the parameter it is each one in turn, if there are as many calls, or else the one that has most in common with the
// module before. Operators of other libraries than ATen are calls, too. Throws a ConfigError that begins with the
// function's name for what a graph cannot express: reading values of tensors, changing an argument, a parameter, a
// buffer, or a tensor of which there are views, norms over the batch, results that no call makes, gradients of the
// function's own, and operators without gradients.
TracedRun run_traced(const TracedFunction& function, const std::vector<at::Tensor>& arguments);

// Where a call is, for messages: " in blocks.0.norm"; nothing outside of all modules.
std::string place_of(const GraphNode& call);

}  // namespace shardline
