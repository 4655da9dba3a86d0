// A study: which runs to make, and how. docs/study.md describes the keys of its file.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/files/json_reader.h"

namespace shardline {

// A result that others have published for a run, to compare it with. Minutes are whole numbers.
struct PublishedResult {
  std::optional<double> minutes, cost, metric;
  bool operator==(const PublishedResult&) const = default;
};

// One combination of settings; its repeats differ in their seed alone.
struct StudyPoint {
  std::string name;        // unique, and the name of a directory
  nlohmann::json factors;  // an object: checked keys, see known_factors() in the source, and keys of the config ("a.b")
  PublishedResult published;
};

struct StudyFile {
  std::string file;    // its name in messages
  std::string config;  // a file; empty: `inline_config`
  nlohmann::json inline_config;
  std::vector<StudyPoint> points;
  int repeats = 1;
  std::vector<std::int64_t> seeds;  // for the repeats; empty: training.seed and the numbers after it
  std::string cluster;              // a file; empty: no run may be planned, unless its factors name one
  std::string prices;               // a file; empty: prices are those of the cluster files
  std::string metric;               // "eval_f1"; empty: none
  std::string source;               // where the published results come from
  int at_once = 0;                  // maximum runs at the same time; 0: as many as the cores allow
  int timeout_seconds = 86400;      // for one run
  std::string output_dir;
};

// Reads the file and expands its matrix. Throws one ConfigError: with every mistake of the file itself, or with the
// mistakes of the first combination that has any.
StudyFile study_from_json(const JsonDocument& document);
StudyFile read_study(const std::string& path);

// The factors that differ between points, in the order of columns.
std::vector<std::string> varied_factors(const std::vector<StudyPoint>& points);
// The value of a factor as names and tables show it; empty if the point does not have it.
std::string factor_text(const nlohmann::json& factors, const std::string& key);

}  // namespace shardline
