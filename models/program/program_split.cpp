#include "models/program/program_split.h"

namespace shardline {

std::vector<int64_t> DividedDimension::places(Range range) const {
  std::vector<int64_t> places;
  for (int64_t outer = 0; outer < before; ++outer)
    for (int64_t inner = 0; inner < range.length * after; ++inner)
      places.push_back((outer * count + range.begin) * after + inner);
  return places;
}

std::pair<std::vector<int64_t>, int> DividedDimension::logical(const std::vector<int64_t>& sizes) const {
  std::vector<int64_t> shape(sizes.begin(), sizes.begin() + dimension);
  if (before > 1) shape.push_back(before);
  const int split = std::ssize(shape);
  shape.push_back(count);
  if (after > 1) shape.push_back(after);
  shape.insert(shape.end(), sizes.begin() + dimension + 1, sizes.end());
  return {shape, split};
}

}  // namespace shardline
