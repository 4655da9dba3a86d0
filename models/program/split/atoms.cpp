#include "models/program/split/atoms.h"

#include <numeric>

#include "core/error.h"

namespace shardline {

Dimension Atoms::make(int64_t size) {
  if (size == 1) return {};
  nodes_.push_back({.size = size, .sections = {}, .why_not = ""});
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

Dimensions Atoms::sections(int atom) const {
  Dimensions all;
  for (const auto& section : nodes_[atom].sections) {
    const Dimension atoms = resolved(section);
    const Dimensions inside = atoms.size() == 1 ? sections(atoms[0]) : Dimensions();
    if (inside.empty())
      all.push_back(atoms);
    else
      all.insert(all.end(), inside.begin(), inside.end());
  }
  return all;
}

Dimension Atoms::leaves(const Dimension& dimension) const {
  Dimension all;
  for (const int atom : resolved(dimension)) {
    if (nodes_[atom].sections.empty()) all.push_back(atom);
    for (const auto& section : sections(atom)) {
      const Dimension inside = leaves(section);
      all.insert(all.end(), inside.begin(), inside.end());
    }
  }
  return all;
}

bool Atoms::cut_at(int atom, int64_t place) {
  if (place == 0 || place == nodes_[atom].size) return true;
  if (nodes_[atom].sections.empty()) {
    const std::string why = nodes_[atom].why_not;
    Dimensions made = {make(place), make(nodes_[atom].size - place)};
    if (!why.empty())
      for (const auto& section : made) forbid(section, why);
    nodes_[atom].sections = std::move(made);
    return true;
  }
  int64_t begin = 0;
  const Dimensions parts = nodes_[atom].sections;  // a copy, because making atoms may move them
  for (const auto& section : parts) {
    const int64_t size = size_of(section);
    if (place == begin) return true;
    if (place < begin + size) {
      const Dimension inside = resolved(section);
      return inside.size() == 1 && cut_at(inside[0], place - begin);
    }
    begin += size;
  }
  return true;
}

std::optional<Dimension> Atoms::section(const Dimension& dimension, int64_t begin, int64_t length) {
  const Dimension all = resolved(dimension);
  if (all.empty() || length <= 0) return {};
  const Dimension inner(all.begin() + 1, all.end());
  const int64_t unit = size_of(inner), end = begin + length;
  if (begin % unit != 0 || length % unit != 0 || end > size_of(all)) return {};
  if (!cut_at(all[0], begin / unit) || !cut_at(all[0], end / unit)) return {};
  Dimensions parts;
  int64_t at = 0;
  for (const auto& part : sections(all[0])) {
    if (at >= begin / unit && at < end / unit) parts.push_back(part);
    at += size_of(part);
  }
  Dimension result;
  if (parts.size() == 1) {
    result = parts[0];
  } else {
    result = make(length / unit);
    nodes_[result.at(0)].sections = parts;
  }
  result.insert(result.end(), inner.begin(), inner.end());
  return result;
}

bool Atoms::merge(int x, int y) {
  const std::string why = nodes_[x].why_not.empty() ? nodes_[y].why_not : nodes_[x].why_not;
  if (nodes_[x].sections.empty()) {
    if (!nodes_[y].sections.empty()) std::swap(x, y);
  } else if (!nodes_[y].sections.empty()) {
    for (const auto& [one, other] : {std::pair(x, y), std::pair(y, x)}) {
      int64_t place = 0;
      for (const auto& part : sections(one)) {
        if (!cut_at(other, place)) return false;
        place += size_of(part);
      }
    }
    const Dimensions of_x = sections(x), of_y = sections(y);
    SL_ASSERT(of_x.size() == of_y.size(), "sections of two atoms are aligned");
    for (size_t i = 0; i < of_x.size(); ++i) unite(of_x[i], of_y[i]);
  }
  if (!why.empty()) forbid({x}, why);
  nodes_[y].same = x;
  return true;
}

void Atoms::divide(int atom, int64_t outer_size) {
  SL_ASSERT(nodes_[atom].outer < 0 && nodes_[atom].same < 0, "atom ", atom, " is divided twice");
  const int64_t inner_size = nodes_[atom].size / outer_size;
  const std::string why = nodes_[atom].why_not;
  for (const int64_t size : {outer_size, inner_size}) nodes_.push_back({.size = size, .sections = {}, .why_not = why});
  nodes_[atom].outer = count() - 2;
  nodes_[atom].inner = count() - 1;
}

void Atoms::unite(const Dimension& a, const Dimension& b) {
  Dimension left = resolved(a), right = resolved(b);
  const auto give_up = [&] {
    const std::string why =
        cat("sizes ", size_of(resolved(a)), " and ", size_of(resolved(b)), " meet, which divide differently");
    forbid(a, why);
    forbid(b, why);
  };
  if (size_of(left) != size_of(right)) return give_up();
  while (!left.empty() && !right.empty()) {
    const int x = left.front(), y = right.front();
    const int64_t of_x = nodes_[x].size, of_y = nodes_[y].size;
    if (of_x != of_y) {
      const auto [large, small] = of_x > of_y ? std::pair(x, of_y) : std::pair(y, of_x);
      if (small == 0 || nodes_[large].size % small != 0 || !nodes_[large].sections.empty()) return give_up();
      divide(large, small);
      left = resolved(left);
      right = resolved(right);
      continue;
    }
    if (x != y && !merge(x, y)) return give_up();
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
        if (has % open != 0 || !nodes_[atom].sections.empty()) return {};
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
  for (const int atom : resolved(dimension)) {
    if (nodes_[atom].why_not.empty()) nodes_[atom].why_not = why;
    for (const auto& section : sections(atom)) forbid(section, why);
  }
}

}  // namespace shardline
