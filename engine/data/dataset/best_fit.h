// Best-fit decreasing: whole items fill bins of one size.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace shardline {

struct Bins {
  std::vector<uint32_t> items;  // in the order of the bins
  std::vector<int64_t> ends;    // items before the end of each bin
  int64_t size() const { return std::ssize(ends); }
  std::span<const uint32_t> operator[](int64_t bin) const {
    const int64_t begin = bin == 0 ? 0 : ends[bin - 1];
    return std::span(items).subspan(begin, ends[bin] - begin);
  }
};

// Takes the items from the longest to the shortest, and equal ones in their order, and puts each into the bin with the
// least room that is sufficient. Bins are in the order of their first items, and so are the items of a bin. Lengths are
// from 1 to `capacity`.
Bins best_fit_decreasing(std::span<const int64_t> lengths, int64_t capacity);

}  // namespace shardline
