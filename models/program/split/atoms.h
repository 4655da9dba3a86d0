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
// size 1 have none. An atom may also be cut into sections that are side by side, such as the queries, keys and values
// that one product makes: each section is a dimension of its own.
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

  // The places [begin, begin + length) of a dimension, as sections of its outermost atom; nothing if its atoms cannot
  // be cut there.
  std::optional<Dimension> section(const Dimension& dimension, int64_t begin, int64_t length);
  // Of a resolved atom: its sections; empty if it is not cut into any.
  Dimensions sections(int atom) const;
  // Resolved atoms, with those of sections instead of an atom that is cut into these.
  Dimension leaves(const Dimension& dimension) const;

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
    Dimensions sections;         // or its sections, each an atom, or nothing if it has size 1
    std::string why_not;
  };

  void resolve(int atom, Dimension& into) const;
  void divide(int atom, int64_t outer_size);
  // Of two resolved atoms of one size; false if their sections cannot be aligned.
  bool merge(int a, int b);
  // Lets a section of a resolved atom begin at this place; false if it cannot.
  bool cut_at(int atom, int64_t place);

  std::vector<Node> nodes_;
};

}  // namespace shardline
