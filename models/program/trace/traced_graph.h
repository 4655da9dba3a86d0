// A graph from a function on tensors, found by running it. Sizes that follow from the batch and the length are found by
// running it at several of them.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "models/program/graph.h"
#include "models/program/trace/size_formula.h"
#include "models/program/trace/traced_run.h"

namespace shardline {

struct TracedFunction {
  std::string name;  // begins messages: "model surrogate"
  // Arguments by name, the first of which is [batch, length], with other values for another variant.
  std::vector<std::string> argument_names;
  std::function<std::vector<at::Tensor>(const BatchSize& size, int variant)> arguments;
  std::vector<OwnedTensor> owned;
  std::map<std::string, std::string> module_types;  // by path
  std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)> run;
};

struct TracedGraph {
  Graph graph;
  std::map<std::string, at::Tensor> constants;  // that neither arguments nor owned tensors are
};

// A call belongs to the module of the parameters that it takes, and otherwise to that of the call before. Throws a
// ConfigError that begins with the function's name for what a graph cannot express: see run_traced, and calls that
// differ with sizes or values of the arguments.
TracedGraph trace_graph(const TracedFunction& function);

}  // namespace shardline
