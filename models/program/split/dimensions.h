// Which dimensions of a program's values count the same things, derived from its calls: the columns of a product are
// those of its weight, heads are atoms of them, and so on. A call that mixes the elements of a dimension forbids
// splitting its atoms, and so does an unknown call.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "models/program/program.h"
#include "models/program/split/atoms.h"
#include "models/program/split/observed_sizes.h"

namespace shardline {

// An argument of a node, or an item of an argument that is a list.
struct Reading {
  int node = 0, argument = 0, item = -1;
  auto operator<=>(const Reading&) const = default;
};

// A product with a weight: one of its factors depends only on parameters.
struct WeightProduct {
  int node = 0;
  std::string parameter;
  double flops = 0;
  bool has_input_gradient = true;
  // rows: including those of batches. A call without a rule has no columns: all dimensions of its weight are summed.
  Dimension rows, summed, columns;
};

struct ProgramDimensions {
  Atoms atoms;
  std::map<int, Dimensions> of_value;  // for values that depend on parameters
  // For other values, by the node that reads them: masks, positions and constants, which every rank has whole. A rank
  // may take its part of them.
  std::map<Reading, Dimensions> of_reading;
  std::map<int, Dimension> summed;  // by node: the dimension over which a product, or a lookup, sums
  // By node, for products whose columns are gathered on every rank: the dimensions of the product's own result.
  // of_value has those with which the program continues.
  std::map<int, Dimensions> gathered;
  // By node, for such products with groups of channels: the dimensions of the rank's part of their input, which is
  // whole.
  std::map<int, Dimensions> sliced;
  std::map<int, int64_t> picked;  // by node, for calls that select a section of size 1: the index of that section
  std::vector<WeightProduct> products;
  // The classes of the head's result and of the logits. Empty if the program has different ones.
  Dimension classes;

  // The dimensions of what a node reads; null if it depends on no parameter and has not been requested.
  const Dimensions* read_at(const Graph& graph, const Reading& reading) const;
};

// Calls visit(reading, value) for each value that a node reads.
template <class Visit>
void visit_readings(const Graph& graph, int node, const Visit& visit) {
  const auto& arguments = graph.nodes[node].arguments;
  for (int i = 0; i < std::ssize(arguments); ++i) {
    if (arguments[i].value >= 0) visit(Reading{node, i}, arguments[i].value);
    for (int item = 0; item < std::ssize(arguments[i].items); ++item)
      if (arguments[i].items[item].value >= 0) visit(Reading{node, i, item}, arguments[i].items[item].value);
  }
}

// gathers: the nodes of ProgramDimensions::gathered. sizes: observed when the program runs on samples_for_dimensions.
ProgramDimensions dimensions_of(const Program& program, const ObservedSizes& sizes, const std::set<int>& gathers = {});
SampleSizes samples_for_dimensions(const Program& program);

}  // namespace shardline
