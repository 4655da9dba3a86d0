// The results of a study's runs: study.jsonl, one object per run.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/study/study_file.h"

namespace shardline {

enum class RunKind { measured, planned, failed };
const char* to_string(RunKind kind);

struct RunRecord {
  std::string name, group;
  RunKind kind = RunKind::failed;
  nlohmann::json factors;
  std::string machine;  // a cluster's name, or Prices::kLocal
  int devices = 1, nodes = 1;
  std::string layout;  // "D=2 P=1 T=1"
  int64_t global_batch = 1;
  double batch_per_device = 1, learning_rate = 0;
  std::optional<int64_t> samples, seed;
  int64_t steps = 0;
  double nominal_steps = 0;  // 0: not known
  // Measured runs: the median of all steps except the first, and the time from the program's start to its end. Planned
  // runs: the predicted step, and its time multiplied by the number of steps.
  double step_seconds = 0, job_seconds = 0, samples_per_second = 0;
  std::optional<double> cost;
  std::map<std::string, double> metrics;  // from the last evaluation; all are finite
  std::optional<int64_t> parameters;
  PublishedResult published;
  std::string error;  // why it failed
};

nlohmann::ordered_json to_json(const RunRecord& record);
// `where` is "FILE:LINE". Throws DataError.
RunRecord record_from_json(const nlohmann::json& json, const std::string& where);

// study.jsonl; empty if the file does not exist. Throws DataError.
std::vector<RunRecord> read_records(const std::string& path);
void write_records(const std::string& path, const std::vector<RunRecord>& records);

}  // namespace shardline
