// Builds a graph from a function on tensors by running it. Sizes that depend on the batch and the length are determined
// by running it at several of them.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "models/program/graph.h"
#include "models/program/trace/traced_run.h"

namespace shardline {

struct TracedGraph {
  Graph graph;
  std::map<std::string, at::Tensor> constants;  // tensors that are neither arguments nor owned
};

// Throws a ConfigError that begins with the function's name for what a graph cannot express: see run_traced, and calls
// that differ with sizes or values of the arguments.
TracedGraph trace_graph(const TracedFunction& function);

}  // namespace shardline
