// What one call reveals about the dimensions of its values.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "models/program/split/dimensions.h"
#include "models/program/split/observed_sizes.h"

namespace shardline {

// Whether each place of the call's results depends only on the same place of its arguments.
bool is_elementwise(const GraphNode& node);

// Whether a call may select some sections of a dimension.
bool cuts_sections(const GraphNode& node);
// The lengths into which a split or chunk cuts a dimension of this size; empty if they are computed.
std::vector<int64_t> lengths_of_split(const GraphNode& node, int64_t size);
// The only place, in a dimension of this size, that a constant list of indices selects; nothing for other lists.
std::optional<int64_t> picked_place(const Program& program, int value, int64_t size);

double product_of(const std::vector<int64_t>& sizes);
Dimension joined(const Dimension& outer, const Dimension& inner);
Dimension flat(const Dimensions& dimensions, size_t begin, size_t end);

class DimensionRules {
 public:
  // gathers: see ProgramDimensions::gathered.
  DimensionRules(const Program& program, const ObservedSizes& sizes, const std::set<int>& gathers,
                 ProgramDimensions& found);

  // Determines the dimensions of this node's results. Nodes must come in graph order.
  void apply(int node);

 private:
  using Rule = void (DimensionRules::*)();
  static Rule rule_of(const GraphNode& node);

  // The current node.
  const GraphNode& call() const { return program_.graph().nodes[node_]; }
  const GraphArgument& argument(const char* name) const;
  bool is_given(const char* name) const;
  int64_t integer(const char* name) const;
  bool is_on(const char* name) const;
  std::vector<int64_t> integers(const char* name) const;
  // The dimension, from the beginning, to which an argument refers, possibly from the end; `of`: number of dimensions.
  static int64_t counted(int64_t dimension, int64_t of);
  const Dimensions& read(const char* name);
  const Dimensions& read_at(const Reading& reading);
  const std::vector<int64_t>& result_sizes() const;
  // Whether the call reads or returns values in memory that calls change in place to trained values.
  bool uses_changed_memory() const;
  std::string here() const;  // names the call in reasons

  void make(const Dimensions& result);
  int64_t size_of(const Dimension& dimension) const;
  void forbid_all(const std::string& why);
  void add_whole_product();
  bool has_equal_slices(int64_t along, int64_t length) const;
  std::optional<Dimension> section_of(const Dimensions& self, int64_t along, int64_t begin, int64_t length);
  void multiply(const char* left, const char* right, bool is_transposed, const char* bias);
  // Records the result of a product that sums over this dimension of both factors.
  void sum_over(const Dimensions& result, const Dimension& summed, const char* left, const char* right);
  // Records the result of a product with a weight, whose dimension `columns` may be gathered.
  void make_product(const Dimensions& result, WeightProduct product, int columns);

  void elementwise();
  void linear();
  void matmul();
  void addmm();
  void baddbmm();
  void grouped_product();
  void convolution();
  void einsum();
  void embedding();
  void norm();
  void softmax();
  void reduction();
  void view();
  void transpose();
  void permute();
  void reverse();
  void matrix_transpose();
  void unsqueeze();
  void squeeze();
  void expand();
  void repeat();
  void cat_tensors();
  void stack();
  void like_self();
  void split();
  void take();
  void pick();
  void gather();
  void select();
  void slice();
  void pad();
  void attention();
  void size();
  void unknown();

  const Program& program_;
  const ObservedSizes& sizes_;
  const std::set<int>& gathers_;
  ProgramDimensions& found_;
  Atoms& atoms_;
  std::vector<std::string> weight_;  // by value: the parameter, if it depends on nothing but parameters
  int node_ = 0;
};

}  // namespace shardline
