#include "engine/data/dataset/best_fit.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "core/error.h"

namespace shardline {

Bins best_fit_decreasing(std::span<const int64_t> lengths, int64_t capacity) {
  const int64_t count = std::ssize(lengths);
  SL_ASSERT(count <= std::numeric_limits<uint32_t>::max(), count, " items");
  std::vector<uint32_t> order(count), bin_of(count);
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(order, std::ranges::greater(), [&](uint32_t item) { return lengths[item]; });
  std::map<int64_t, std::vector<uint32_t>> with_room;  // bins by the room that they have left, if any
  uint32_t bins = 0;
  for (const uint32_t item : order) {
    SL_ASSERT(lengths[item] >= 1 && lengths[item] <= capacity, "an item of ", lengths[item], " for ", capacity);
    uint32_t bin = bins;
    int64_t room = capacity;
    if (const auto best = with_room.lower_bound(lengths[item]); best != with_room.end()) {
      room = best->first;
      bin = best->second.back();
      best->second.pop_back();
      if (best->second.empty()) with_room.erase(best);
    } else {
      ++bins;
    }
    bin_of[item] = bin;
    if (room > lengths[item]) with_room[room - lengths[item]].push_back(bin);
  }
  // Numbers the bins by their first items, and collects the items of each.
  constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  std::vector<uint32_t> number(bins, kNone);
  Bins made{.items = std::vector<uint32_t>(count), .ends = std::vector<int64_t>(bins)};
  uint32_t numbered = 0;
  for (uint32_t& bin : bin_of) {
    if (number[bin] == kNone) number[bin] = numbered++;
    bin = number[bin];
    ++made.ends[bin];
  }
  std::exclusive_scan(made.ends.begin(), made.ends.end(), made.ends.begin(), int64_t{0});
  for (int64_t item = 0; item < count; ++item) made.items[made.ends[bin_of[item]]++] = item;
  return made;
}

}  // namespace shardline
