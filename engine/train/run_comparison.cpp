#include "engine/train/run_comparison.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/observe/format.h"

namespace shardline {
namespace {

using nlohmann::json;

constexpr double kMostTimes = 10;

// The difference in percent of the measured value, or as a limit if the factor between the two is large.
std::string difference(double predicted, double measured) {
  if (measured == 0) return "";
  if (predicted > kMostTimes * measured) return cat("over ", kMostTimes, " times");
  if (predicted < measured / kMostTimes) return cat("under 1/", kMostTimes);
  const double percent = 100 * (predicted / measured - 1);
  std::ostringstream text;
  text.precision(3);
  text << (percent >= 0 ? "+" : "") << percent << " %";
  return text.str();
}

// The predicted speed-up of the candidates' first layout.
double gain(const Forecast& forecast, const Candidates& candidates) {
  return candidates.found.best.empty() ? 1 : forecast.step.seconds / candidates.found.best.front().step.seconds;
}

}  // namespace

json comparison_json(const Forecast& forecast, const MeasuredRun& run, const std::optional<Candidates>& candidates) {
  const auto both = [](double predicted, double measured) {
    return json{{"predicted", predicted}, {"measured", measured}};
  };
  json ranks = json::array();
  for (size_t rank = 0; rank < std::min(run.counted_bytes.size(), forecast.memory.size()); ++rank)
    ranks.push_back({{"rank", rank}, {"memory_bytes", both(forecast.memory[rank].total(), run.counted_bytes[rank])}});
  json compared = {{"steps", run.steps},
                   {"step_seconds", both(forecast.step.seconds, run.step_seconds)},
                   {"bubble_fraction", both(forecast.step.bubble_fraction, run.bubble_fraction)},
                   {"tokens_per_second", both(forecast.step.tokens_per_second, run.tokens_per_second)},
                   {"ranks", ranks}};
  if (candidates) {
    const double factor = gain(forecast, *candidates);
    compared["gain"] = {{"factor", factor}, {"step_seconds", run.step_seconds / factor}};
  }
  return compared;
}

std::string comparison_text(const Forecast& forecast, const MeasuredRun& run,
                            const std::optional<Candidates>& candidates) {
  std::vector<TableRow> rows = {
      {"step", format_duration(forecast.step.seconds), format_duration(run.step_seconds),
       difference(forecast.step.seconds, run.step_seconds)},
      {"tokens/s", format_count(forecast.step.tokens_per_second), format_count(run.tokens_per_second),
       difference(forecast.step.tokens_per_second, run.tokens_per_second)},
      {"outside passes", format_percent(forecast.step.bubble_fraction), format_percent(run.bubble_fraction), ""}};
  for (size_t rank = 0; rank < std::min(run.counted_bytes.size(), forecast.memory.size()); ++rank)
    if (run.counted_bytes[rank] > 0)
      rows.push_back({cat("memory of rank ", rank), format_bytes(forecast.memory[rank].total()),
                      format_bytes(run.counted_bytes[rank]),
                      difference(forecast.memory[rank].total(), run.counted_bytes[rank])});
  std::string text =
      table({cat("median of ", run.steps, " steps"), "predicted", "measured", "relative to measured"}, rows);
  if (!candidates) return text;
  const double factor = gain(forecast, *candidates);
  return text + (factor > 1.001 ? cat("the best layout would need ", format_duration(run.step_seconds / factor),
                                      " per step if its prediction is off by the same factor\n")
                                : "no layout is predicted to have a shorter step\n");
}

}  // namespace shardline
