#include "engine/config/keys/memory_cap.h"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace shardline {
namespace {

constexpr double kLargest = 9007199254740992.0;  // 2^53

// Bytes of a unit; -1 if it is not one.
double unit_of(const std::string& name) {
  double unit = 1;
  if (name.empty() || name == "B") return unit;
  for (const char* known : {"KiB", "MiB", "GiB", "TiB"}) {
    unit *= 1024;
    if (name == known) return unit;
  }
  return -1;
}

}  // namespace

int64_t memory_cap_bytes(const nlohmann::json& value) {
  if (value.is_null()) return 0;
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  const char* const end = text.data() + text.size();
  double number = 0;
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  const double bytes = error == std::errc() ? std::floor(number * unit_of(std::string(stop, end))) : 0;
  if (!(bytes >= 1 && bytes <= kLargest))
    throw ConfigError("must be a number of bytes, or a string such as \"512MiB\" or \"2GiB\"; leave it out for no cap");
  return bytes;
}

}  // namespace shardline
