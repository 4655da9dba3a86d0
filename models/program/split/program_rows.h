// Which values of a program have a row for each token of the microbatch, and which calls compute each row from the same
// row only. Ranks can divide the rows of such values (optimize: memory).
#pragma once
#include <set>
#include <vector>

#include "models/program/split/dimensions.h"

namespace shardline {

class ProgramRows {
 public:
  // A program with a target has no such values, because its borders have two kinds of rows.
  ProgramRows(const Program& program, const ProgramDimensions& found);

  // How many leading dimensions of a value count the tokens: 1 for [tokens, ...], 2 for [batch, length, ...]; 0: it has
  // no such rows.
  int leading(int value) const { return leading_[value]; }
  // Whether what is read has a dimension that counts tokens.
  bool has_tokens(const Graph& graph, const Reading& reading) const;
  bool is_by_row(int node) const { return nodes_.contains(node); }
  bool is_border(int value) const { return borders_.contains(value); }

 private:
  int leading_of(const Dimensions& dimensions) const;
  bool has_tokens(const Dimension& dimension) const;
  // Whether dimensions `read`, aligned on the right with `result`, have their tokens at the same place.
  bool is_aligned(const Dimensions& read, const Dimensions& result, int leading) const;
  bool makes_rows_alone(const Graph& graph, int node) const;

  const ProgramDimensions& found_;
  Dimension samples_, places_;  // the atoms of batch and length
  std::vector<int> leading_;    // by value
  std::set<int> nodes_, borders_;
};

}  // namespace shardline
