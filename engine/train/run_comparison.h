// Compares the measurements of a run with its plan.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "engine/plan/forecast.h"
#include "engine/plan/layout_search.h"
#include "engine/train/measured_run.h"

namespace shardline {

// {step_seconds: {predicted, measured}, bubble_fraction, tokens_per_second, ranks: [{rank, memory_bytes: {...}}]}; with
// a search also `gain`: the predicted speed-up of its best layout, and the measured step divided by it.
nlohmann::json comparison_json(const Forecast& forecast, const MeasuredRun& run,
                               const std::optional<Candidates>& candidates);
std::string comparison_text(const Forecast& forecast, const MeasuredRun& run,
                            const std::optional<Candidates>& candidates);

}  // namespace shardline
