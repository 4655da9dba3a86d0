// Compares the measurements of a run with its plan.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "engine/plan/layout_search.h"

namespace shardline {

struct MeasuredRun {
  int64_t steps = 0;        // that were measured: all but the first, which is slower than others, if there are more
  double step_seconds = 0;  // medians
  double bubble_fraction = 0;
  double tokens_per_second = 0;
  std::vector<double> counted_bytes;  // by rank, at most; 0 if not counted
};

// From output_dir/metrics.jsonl, of which three numbers a step and one a rank are kept at a time. ConfigError when it
// has no step; DataError for what cannot be read.
MeasuredRun measured_run(const std::string& output_dir);

// {step_seconds: {predicted, measured}, bubble_fraction, tokens_per_second, ranks: [{rank, memory_bytes: {...}}]}; with
// a search also `gain`: what its best layout would make of the measured step, were it mistaken by the same factor.
nlohmann::json comparison_json(const Forecast& forecast, const MeasuredRun& run,
                               const std::optional<Candidates>& candidates);
std::string comparison_text(const Forecast& forecast, const MeasuredRun& run,
                            const std::optional<Candidates>& candidates);

}  // namespace shardline
