#include "core/number_text.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <vector>

namespace shardline {
namespace {

// Divides by `base` until the number, rounded to one decimal, is below it; whole numbers of the first unit stay whole.
std::string scaled(double value, double base, const std::vector<std::string>& units) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  size_t unit = 0;
  while (unit + 1 < units.size() && std::round(std::abs(value) * 10) / 10 >= base) {
    value /= base;
    ++unit;
  }
  const bool whole = unit == 0 && value == std::round(value);
  return format_decimals(value, whole ? 0 : 1) + units[unit];
}

}  // namespace

std::string format_decimals(double value, int places) {
  std::array<char, 400> text;
  std::snprintf(text.data(), text.size(), "%.*f", places, value);
  return text.data();
}

std::string format_bytes(double bytes) {
  return scaled(bytes, 1024, {" B", " KiB", " MiB", " GiB", " TiB", " PiB"});
}

std::string format_count(double count) {
  return scaled(count, 1000, {"", "k", "M", "B", "T"});
}

}  // namespace shardline
