// One run of a function on tensors, as calls on numbered values.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "models/program/graph.h"
#include "models/program/trace/size_formula.h"

namespace shardline {

// A tensor that the function uses but is not given as an argument, such as a parameter of its module.
struct OwnedTensor {
  std::string name;
  GraphInput::Kind kind = GraphInput::Kind::parameter;
  at::Tensor tensor;
  std::vector<std::string> other_names = {};  // in modules that share it
};

struct TracedFunction {
  std::string name;  // begins messages: "model surrogate"
  // Arguments by name, with different values for each variant. One has the sizes [batch, length] and, if there are
  // targets, one has [batch, target].
  std::vector<std::string> argument_names;
  int rows = 0, target_rows = -1;  // the indices of these arguments
  std::function<std::vector<at::Tensor>(const BatchSize& size, int variant)> arguments;
  std::vector<BatchSize> further_sizes;  // additional sizes at which the calls must be the same
  std::vector<OwnedTensor> owned;
  std::map<std::string, std::string> module_types;  // by path
  std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)> run;
};

struct TracedRun {
  // Values are the arguments, the owned tensors, and then the results of calls, in order. A constant becomes a value at
  // its first use.
  std::vector<at::Tensor> values;
  std::vector<GraphNode> calls;
  std::vector<int> constants;  // values that no call computes and nobody owns
  std::vector<int> results;    // values that the function returns
};

// Runs the function. Operators that change a tensor in place are replaced by ones that return the changed tensor,
// unless the tensor is a buffer. A call belongs to the module of the parameter that it takes, otherwise to the module
// of the previous call. If modules share the parameter, each of them gets one call in turn if there are as many calls
// as modules, otherwise the one with the most in common with the previous module. Operators of libraries other than
// ATen are calls, too. Throws a ConfigError that begins with the function's name for what a graph cannot express:
// reading values of tensors, changing an argument, a parameter, or a tensor with views, norms over the batch, results
// that no call computes, custom gradients of the function, and operators without gradients.
TracedRun run_traced(const TracedFunction& function, const std::vector<at::Tensor>& arguments);

}  // namespace shardline
