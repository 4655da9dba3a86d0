// Compares the measurements of a run with its plan.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "engine/plan/forecast.h"
#include "engine/plan/layout_search.h"

namespace shardline {

struct MeasuredRun {
  int64_t steps = 0;        // that were measured: all but the first one, which is slower, if there are others
  double step_seconds = 0;  // medians
  double bubble_fraction = 0;
  double tokens_per_second = 0;
  std::vector<double> counted_bytes;  // by rank, the maximum; 0 if not counted
};

// Reads output_dir/metrics.jsonl; keeps three numbers per step and one per rank. Throws ConfigError if it has no step,
// DataError for lines that cannot be read.
MeasuredRun measured_run(const std::string& output_dir);

// {step_seconds: {predicted, measured}, bubble_fraction, tokens_per_second, ranks: [{rank, memory_bytes: {...}}]}; with
// a search also `gain`: the predicted speed-up of its best layout, and the measured step divided by it.
nlohmann::json comparison_json(const Forecast& forecast, const MeasuredRun& run,
                               const std::optional<Candidates>& candidates);
std::string comparison_text(const Forecast& forecast, const MeasuredRun& run,
                            const std::optional<Candidates>& candidates);

}  // namespace shardline
