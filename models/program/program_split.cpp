#include "models/program/program_split.h"

#include "core/error.h"

namespace shardline {

int64_t DividedDimension::middle() const {
  int64_t all = sections.empty() ? count : 0;
  for (const auto& section : sections) all += section.size();
  return all;
}

int64_t DividedDimension::own_middle(int ranks, int rank) const {
  int64_t own = sections.empty() ? split_range(count, ranks, rank).length : 0;
  for (const auto& section : sections) own += section.own_size(ranks, rank);
  return own;
}

std::vector<int64_t> DividedDimension::places(int ranks, int rank) const {
  std::vector<Section> parts = sections;
  if (parts.empty()) parts.push_back({.count = count, .is_divided = true});
  std::vector<int64_t> places;
  for (int64_t outer = 0; outer < before; ++outer) {
    int64_t begin = outer * middle();
    for (const auto& part : parts) {
      const Range mine = part.own(ranks, rank);
      for (int64_t i = 0; i < part.before; ++i)
        for (int64_t inner = 0; inner < mine.length * part.after * after; ++inner)
          places.push_back((begin + (i * part.count + mine.begin) * part.after) * after + inner);
      begin += part.size();
    }
  }
  return places;
}

int64_t DividedDimension::own_place(int64_t place, int ranks, int rank) const {
  int64_t at = 0, own = 0;
  for (const auto& section : sections) {
    if (at >= place) break;
    at += section.size();
    own += section.own_size(ranks, rank);
  }
  SL_ASSERT(at == place, "no section begins at ", place);
  return own;
}

std::pair<std::vector<int64_t>, int> DividedDimension::logical(const std::vector<int64_t>& sizes) const {
  SL_ASSERT(sections.empty(), "a tensor with sections is not a rectangle of parts");
  std::vector<int64_t> shape(sizes.begin(), sizes.begin() + dimension);
  if (before > 1) shape.push_back(before);
  const int split = std::ssize(shape);
  shape.push_back(count);
  if (after > 1) shape.push_back(after);
  shape.insert(shape.end(), sizes.begin() + dimension + 1, sizes.end());
  return {shape, split};
}

}  // namespace shardline
