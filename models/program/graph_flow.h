// How the values of a graph follow from each other, also through memory that calls change in place.
#pragma once
#include <functional>
#include <map>
#include <vector>

#include "models/program/graph.h"

namespace shardline {

struct GraphFlow {
  std::vector<int> producer;  // by value: the node that makes it; -1: an input
  // By value: the number of the first value that may have the same memory, as views of it have.
  std::vector<int> storage;
  std::map<int, std::vector<int>> changes;  // by storage: the nodes that change it in place, in order
  std::vector<bool> is_trained;             // by value: follows from parameters or from random numbers

  // The nodes before node `end` that change what is read as this value.
  std::vector<int> changes_before(int value, int end) const;

  // The nodes that make these values as they are before node `end`, from values that nothing makes or that `is_given`
  // says of a value and its producer. What changes a given value after its producer belongs to the part from node
  // `begin` on.
  using IsGiven = std::function<bool(int value)>;
  GraphPart part(const Graph& graph, const std::vector<int>& wanted, int begin, int end, const IsGiven& is_given) const;
};

GraphFlow flow_of(const Graph& graph);

// Replaces calls such as add_ by add where only the call itself reads what it changes, and nothing else has this
// memory: then the numbers are the same, and the result is a value like any other.
void make_calls_functional(Graph& graph);

template <class Visit>
void visit_values(const GraphArgument& argument, const Visit& visit) {
  if (argument.value >= 0) visit(argument.value);
  for (const auto& item : argument.items) visit_values(item, visit);
}

}  // namespace shardline
