// Alignment of memory addresses.
#pragma once
#include <cstdint>

namespace shardline {

// Whether the address is a multiple of `bytes`, which must be a power of two. True for a null pointer.
inline bool is_aligned(const void* address, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(address) % bytes == 0;
}

}  // namespace shardline
