// A shuffle that is the same on every machine.
#pragma once
#include <cstdint>
#include <vector>

namespace shardline {

// The numbers 0 ... count - 1 in an order that depends on the two seeds alone: a Fisher-Yates shuffle driven by
// splitmix64. Equal counts with swapped seeds have unrelated orders.
std::vector<uint32_t> shuffled_numbers(int64_t count, uint64_t seed, uint64_t purpose);

}  // namespace shardline
