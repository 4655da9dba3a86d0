// The cases that make_golden.py wrote, and how close to their results ours must be.
#pragma once
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/metrics/precision_recall.h"

#include "tests/catch.h"

namespace shardline {

// The cases of NAME.json, from the folder SHARDLINE_METRICS_GOLDEN if it is set.
inline nlohmann::json golden_cases(const std::string& name) {
  const char* folder = std::getenv("SHARDLINE_METRICS_GOLDEN");
  const std::string path = (folder ? folder : SHARDLINE_METRICS_TESTS "/golden") + ("/" + name + ".json");
  INFO(path);
  std::ifstream file(path);
  REQUIRE(file);
  nlohmann::json cases = nlohmann::json::parse(file);
  REQUIRE(cases.size() >= 60);
  return cases;
}

// Whether numbers of moderate size are equal up to rounding in double precision; both may be NaN, which is null in
// JSON.
inline bool is_near(double ours, const nlohmann::json& theirs) {
  if (theirs.is_null()) return std::isnan(ours);
  const double expected = theirs;
  return std::abs(ours - expected) <= 1e-12 * std::max(1.0, std::abs(expected));
}

inline bool is_near(const PrecisionRecall& ours, const nlohmann::json& theirs) {
  return is_near(ours.precision, theirs[0]) && is_near(ours.recall, theirs[1]) && is_near(ours.f1, theirs[2]);
}

}  // namespace shardline
