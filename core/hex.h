// Numbers as hexadecimal digits.
#pragma once
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>

namespace shardline {

// All 16 hexadecimal digits of the number.
inline std::string hex_digits(uint64_t number) {
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, number);
  return text;
}

// Returns 16 random digits, different in every call.
inline std::string random_digits() {
  std::random_device random;
  const uint64_t high = random();
  return hex_digits(high << 32 | random());
}

}  // namespace shardline
