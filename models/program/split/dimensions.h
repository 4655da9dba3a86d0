// Which dimensions of a program's values count the same things, found from its calls: columns of a product are those of
// its weight, heads are atoms of them, and so on. What mixes the elements of a dimension forbids its atoms, and so does
// a call that is not known.
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

// A product with a weight: nothing but parameters goes into one factor.
struct WeightProduct {
  int node = 0;
  std::string parameter;
  double flops = 0;
  bool has_input_gradient = true;
  Dimension rows, summed, columns;  // rows: with those of batches
};

struct ProgramDimensions {
  Atoms atoms;
  std::map<int, Dimensions> of_value;  // of values that follow from parameters
  // Of other values, where a node with such a value reads them: masks, positions and constants, which every rank has
  // whole. A rank may take its part of them.
  std::map<Reading, Dimensions> of_reading;
  std::map<int, Dimension> summed;  // by node: the dimension over which a product, or a lookup, adds
  // By node, of products whose columns every rank gets as a whole: what the product makes before that. of_value has
  // what the program goes on with.
  std::map<int, Dimensions> gathered;
  std::map<int, int64_t> picked;  // by node, of calls that pick a section of size 1: its place
  std::vector<WeightProduct> products;
  // Of the head's result and of the logits: the classes. Empty if the program has other ones.
  Dimension classes;

  // Those of what a node reads there; null if it follows from no parameter and nothing has asked for them.
  const Dimensions* read_at(const Graph& graph, const Reading& reading) const;
};

// Calls visit(reading, value) for each value that a node takes.
template <class Visit>
void visit_readings(const Graph& graph, int node, const Visit& visit) {
  const auto& arguments = graph.nodes[node].arguments;
  for (int i = 0; i < std::ssize(arguments); ++i) {
    if (arguments[i].value >= 0) visit(Reading{node, i}, arguments[i].value);
    for (int item = 0; item < std::ssize(arguments[i].items); ++item)
      if (arguments[i].items[item].value >= 0) visit(Reading{node, i, item}, arguments[i].items[item].value);
  }
}

// gathers: the nodes of ProgramDimensions::gathered. sizes: of the program on samples_for_dimensions.
ProgramDimensions dimensions_of(const Program& program, const ObservedSizes& sizes, const std::set<int>& gathers = {});
SampleSizes samples_for_dimensions(const Program& program);

}  // namespace shardline
