// The records of a training run in its output_dir that a page shows.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/keys/options.h"
#include "engine/observe/recorded_metrics.h"
#include "partitioner/memory/rank_memory.h"

namespace shardline {

struct RunHistory {
  std::string name, directory;
  Config config;  // config.resolved.json
  RecordedMetrics metrics;
  nlohmann::json plan;             // plan.json; null if the file is missing
  std::string label_counts;        // in the training data: "negative 612 (51.0 %), ..."; empty: no classes
  std::vector<std::string> notes;  // what could not be read, and why

  std::optional<double> planned_bubble() const;
  std::string layout() const;  // "D=2 P=1 T=1, global batch 8"; empty without plan.json
};

// Throws ConfigError if the directory has no metrics.jsonl or config.resolved.json, DataError for damaged records.
RunHistory read_run(const std::string& directory, const std::string& name);

// The memory of each rank as planned for the machine of the run; unset, with a note, if that cannot be computed (its
// model or profile no longer exists).
std::optional<std::vector<MemoryBytes>> planned_memory(RunHistory& run);

}  // namespace shardline
