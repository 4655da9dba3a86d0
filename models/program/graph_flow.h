// How the values of a graph depend on each other, including through memory that calls change in place.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "models/program/graph.h"

namespace shardline {

struct GraphFlow {
  std::vector<int> producer;  // by value: the node that produces it; -1: an input
  // By value: the number of the first value that may share its memory, as views do.
  std::vector<int> storage;
  std::map<int, std::vector<int>> changes;  // by storage: the nodes that change it in place, in order
  std::vector<bool> is_trained;             // by value: depends on parameters or on random numbers

  // The value before calls that change only its form or the order of its dimensions, or slice all of it.
  int origin(const Graph& graph, int value) const;

  // The nodes before node `end` that change the memory of this value.
  std::vector<int> changes_before(int value, int end) const;

  // The nodes that produce these values, as they are before node `end`, from inputs and from values for
  // which `is_given` returns true. Changes of a given value after its producer are included from node
  // `begin` on.
  using IsGiven = std::function<bool(int value)>;
  GraphPart part(const Graph& graph, const std::vector<int>& wanted, int begin, int end, const IsGiven& is_given) const;

  // What would pass if the graph were cut before each of its nodes, and at its end: the sum of `features_of` over the
  // values that are made before and read afterwards; -1 if that is -1 for one of them.
  using FeaturesOf = std::function<int64_t(int value)>;
  std::vector<int64_t> widths_of_cuts(const Graph& graph, const FeaturesOf& features_of) const;
};

GraphFlow flow_of(const Graph& graph);

// Replaces calls such as add_ by add if only the call itself reads what it changes, and nothing else shares this
// memory: then the numbers are the same, and the result is a value like any other.
void make_calls_functional(Graph& graph);

// Replaces dropouts that never drop anything by aliases, so that they do not count as random calls.
void make_idle_dropouts_aliases(Graph& graph);

// Replaces views by reshapes where no call changes their memory: results of kernels, such as those of attention, have
// other strides here than in the export, with which a view may be impossible.
void make_views_reshapes(Graph& graph);

// Replaces sizes that are the same for all inputs by numbers, so that nothing needs the tensors for them.
void make_fixed_sizes_numbers(Graph& graph);

// Takes symbolic sizes that this value has, too, from it instead of from the results of calls.
void take_sizes_from(Graph& graph, int value);

template <class Visit>
void visit_values(const GraphArgument& argument, const Visit& visit) {
  if (argument.value >= 0) visit(argument.value);
  for (const auto& item : argument.items) visit_values(item, visit);
}

}  // namespace shardline
