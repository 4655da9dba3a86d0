// Numbers as hexadecimal digits.
#pragma once
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <string>

namespace shardline {

// All 16 digits of the number.
inline std::string hex_digits(uint64_t number) {
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, number);
  return text;
}

}  // namespace shardline
