// Dimensions of tensors as ordered lists of atoms. If a program shows that two dimensions count the same things, their
// atoms are merged; if a view takes a dimension apart, its atom is divided. An atom can be split over ranks as a unit,
// everywhere it occurs, if it ends in parameters and products.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shardline {

// The atoms of a dimension, outermost first: for [heads, head_dim] viewed as one dimension, these two. Dimensions of
// size 1 have none. An atom may also be cut into adjacent sections, such as the queries, keys and values computed by
// one product: each section is a dimension of its own.
using Dimension = std::vector<int>;
using Dimensions = std::vector<Dimension>;

class Atoms {
 public:
  Dimension make(int64_t size);
  Dimensions make_all(const std::vector<int64_t>& sizes);

  // The same dimension as undivided atoms, where merged atoms have the same number.
  Dimension resolved(const Dimension& dimension) const;
  int64_t size(int atom) const { return nodes_[atom].size; }
  int64_t size_of(const Dimension& dimension) const;

  // Merges two dimensions. If they have different sizes, or their atoms cannot be aligned, forbids both.
  void unite(const Dimension& a, const Dimension& b);
  // Consecutive parts of these sizes; nothing if an atom would be cut unequally.
  std::optional<Dimensions> cut(const Dimension& dimension, const std::vector<int64_t>& sizes);

  // The places [begin, begin + length) of a dimension, as sections of its outermost atom; nothing if its atoms cannot
  // be cut there.
  std::optional<Dimension> section(const Dimension& dimension, int64_t begin, int64_t length);
  // The sections of a resolved atom; empty if it has none.
  Dimensions sections(int atom) const;
  // Resolved atoms, where an atom that is cut into sections is replaced by those of its sections.
  Dimension leaves(const Dimension& dimension) const;

  // Marks these atoms as not splittable, and why; only the first reason is kept.
  void forbid(const Dimension& dimension, const std::string& why);
  // The reason for a resolved atom; empty if it may be split.
  const std::string& why_not(int atom) const { return nodes_[atom].why_not; }

  int count() const { return std::ssize(nodes_); }

 private:
  struct Node {
    int64_t size = 1;
    int same = -1;               // the atom that it was merged with
    int outer = -1, inner = -1;  // the atoms into which it is divided
    Dimensions sections;         // or its sections, each an atom, or empty if it has size 1
    std::string why_not;
  };

  void resolve(int atom, Dimension& into) const;
  void divide(int atom, int64_t outer_size);
  // Merges two resolved atoms of equal size; returns false if their sections cannot be aligned.
  bool merge(int a, int b);
  // Makes a section of a resolved atom begin at this place; false if that is impossible.
  bool cut_at(int atom, int64_t place);

  std::vector<Node> nodes_;
};

}  // namespace shardline
