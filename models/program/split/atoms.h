// Dimensions of tensors as ordered lists of atoms. Where a program shows that two dimensions count the same things,
// their atoms become one; where a view takes a dimension apart, its atom is divided. An atom that ends in parameters
// and products can be split over ranks as one, wherever it occurs.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shardline {

// The atoms of a dimension, the outermost first: of [heads, head_dim] viewed as one dimension these two. Dimensions of
// size 1 have none.
using Dimension = std::vector<int>;
using Dimensions = std::vector<Dimension>;

class Atoms {
 public:
  Dimension make(int64_t size);
  Dimensions make_all(const std::vector<int64_t>& sizes);

  // The same dimension as atoms that are not divided, each under the number that all of its kind share.
  Dimension resolved(const Dimension& dimension) const;
  int64_t size(int atom) const { return nodes_[atom].size; }
  int64_t size_of(const Dimension& dimension) const;

  // Makes two dimensions one. If they have different sizes, or their atoms cannot be aligned, both are forbidden.
  void unite(const Dimension& a, const Dimension& b);
  // Consecutive parts of these sizes; nothing if an atom would be cut unequally.
  std::optional<Dimensions> cut(const Dimension& dimension, const std::vector<int64_t>& sizes);

  // These atoms cannot be split, because...; the first reason stays.
  void forbid(const Dimension& dimension, const std::string& why);
  // Of a resolved atom; empty if it may be split.
  const std::string& why_not(int atom) const { return nodes_[atom].why_not; }

  int count() const { return std::ssize(nodes_); }

 private:
  struct Node {
    int64_t size = 1;
    int same = -1;               // the atom that it has become one with
    int outer = -1, inner = -1;  // the atoms that it is divided into
    std::string why_not;
  };

  void resolve(int atom, Dimension& into) const;
  void divide(int atom, int64_t outer_size);

  std::vector<Node> nodes_;
};

}  // namespace shardline
