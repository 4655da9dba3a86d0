// The prices of machines.
#pragma once
#include <map>
#include <optional>
#include <string>

#include "core/files/json_reader.h"

namespace shardline {

// A file {"currency": "USD", "hourly_prices": {"p3.2xlarge": 3.06, "local": 0.5}, "sources": ...}: prices of a node, by
// the "name" in its cluster file; "local" is the host on which runs are measured.
struct Prices {
  static constexpr const char* kLocal = "local";
  std::string currency;
  std::map<std::string, double> hourly;

  std::optional<double> of(const std::string& machine) const;
};

// Throws one ConfigError with all mistakes.
Prices prices_from_json(const JsonDocument& document);
Prices read_prices(const std::string& path);

}  // namespace shardline
