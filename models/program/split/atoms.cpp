#include "models/program/split/atoms.h"

#include <numeric>

#include "core/error.h"

namespace shardline {

Dimension Atoms::make(int64_t size) {
  if (size == 1) return {};
  nodes_.push_back({.size = size, .why_not = ""});
  return {count() - 1};
}

Dimensions Atoms::make_all(const std::vector<int64_t>& sizes) {
  Dimensions dimensions;
  for (const int64_t size : sizes) dimensions.push_back(make(size));
  return dimensions;
}

void Atoms::resolve(int atom, Dimension& into) const {
  while (nodes_[atom].same >= 0) atom = nodes_[atom].same;
  if (nodes_[atom].outer < 0) return into.push_back(atom);
  resolve(nodes_[atom].outer, into);
  resolve(nodes_[atom].inner, into);
}

Dimension Atoms::resolved(const Dimension& dimension) const {
  Dimension atoms;
  for (const int atom : dimension) resolve(atom, atoms);
  return atoms;
}

int64_t Atoms::size_of(const Dimension& dimension) const {
  return std::accumulate(dimension.begin(), dimension.end(), int64_t{1},
                         [&](int64_t product, int atom) { return product * nodes_[atom].size; });
}

void Atoms::divide(int atom, int64_t outer_size) {
  SL_ASSERT(nodes_[atom].outer < 0 && nodes_[atom].same < 0, "atom ", atom, " is divided twice");
  const int64_t inner_size = nodes_[atom].size / outer_size;
  const std::string why = nodes_[atom].why_not;
  for (const int64_t size : {outer_size, inner_size}) nodes_.push_back({.size = size, .why_not = why});
  nodes_[atom].outer = count() - 2;
  nodes_[atom].inner = count() - 1;
}

void Atoms::unite(const Dimension& a, const Dimension& b) {
  Dimension left = resolved(a), right = resolved(b);
  const auto give_up = [&] {
    const std::string why =
        cat("sizes ", size_of(resolved(a)), " and ", size_of(resolved(b)), " meet that divide differently");
    forbid(a, why);
    forbid(b, why);
  };
  if (size_of(left) != size_of(right)) return give_up();
  while (!left.empty() && !right.empty()) {
    const int x = left.front(), y = right.front();
    const int64_t of_x = nodes_[x].size, of_y = nodes_[y].size;
    if (of_x != of_y) {
      const auto [large, small] = of_x > of_y ? std::pair(x, of_y) : std::pair(y, of_x);
      if (small == 0 || nodes_[large].size % small != 0) return give_up();
      divide(large, small);
      left = resolved(left);
      right = resolved(right);
      continue;
    }
    if (x != y) {
      if (nodes_[x].why_not.empty()) nodes_[x].why_not = nodes_[y].why_not;
      nodes_[y].same = x;
    }
    left = resolved({left.begin() + 1, left.end()});
    right = resolved({right.begin() + 1, right.end()});
  }
}

std::optional<Dimensions> Atoms::cut(const Dimension& dimension, const std::vector<int64_t>& sizes) {
  Dimension rest = resolved(dimension);
  Dimensions parts;
  for (const int64_t size : sizes) {
    Dimension part;
    int64_t open = size;
    while (open > 1) {
      if (rest.empty()) return {};
      const int atom = rest.front();
      if (const int64_t has = nodes_[atom].size; has > open) {
        if (has % open != 0) return {};
        divide(atom, open);
        rest = resolved(rest);
        continue;
      } else if (has == 0 || open % has != 0) {
        return {};
      }
      open /= nodes_[atom].size;
      part.push_back(atom);
      rest.erase(rest.begin());
    }
    if (open == 0) return {};
    parts.push_back(part);
  }
  if (!rest.empty()) return {};
  return parts;
}

void Atoms::forbid(const Dimension& dimension, const std::string& why) {
  for (const int atom : resolved(dimension))
    if (nodes_[atom].why_not.empty()) nodes_[atom].why_not = why;
}

}  // namespace shardline
