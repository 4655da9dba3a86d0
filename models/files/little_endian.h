// Integers in binary files.
#pragma once
#include <cstdint>
#include <string_view>

namespace shardline {

// At most 8 bytes as an unsigned integer, lowest byte first.
inline uint64_t little_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes.size(); ++i) value |= uint64_t{uint8_t(bytes[i])} << (8 * i);
  return value;
}

}  // namespace shardline
