#include "engine/run_comparison.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/json_data.h"
#include "engine/median.h"
#include "engine/observe/format.h"

namespace shardline {
namespace {

using nlohmann::json;

double median_of(const std::vector<json>& steps, const char* key) {
  std::vector<double> values;
  for (const auto& step : steps)
    if (step.contains(key) && step[key].is_number()) values.push_back(step[key].get<double>());
  if (values.empty()) throw DataError(cat("metrics.jsonl: no step has a number \"", key, "\""));
  return median(values);
}

std::string difference(double predicted, double measured) {
  if (measured == 0) return "";
  const double percent = 100 * (predicted / measured - 1);
  std::ostringstream text;
  text.precision(3);
  text << (percent >= 0 ? "+" : "") << percent << " %";
  return text.str();
}

// Of the measured step, at the candidates' first layout.
double gain(const Forecast& forecast, const Candidates& candidates) {
  return candidates.found.best.empty() ? 1 : forecast.step.seconds / candidates.found.best.front().step.seconds;
}

}  // namespace

MeasuredRun measured_run(const std::string& output_dir) {
  const std::string path = output_dir + "/metrics.jsonl";
  std::ifstream file(path);
  if (!file) throw ConfigError(cat(path, " cannot be read; name the output_dir of a training run"));
  std::vector<json> steps;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    json object = parse_data_json(line, cat(path, ":", ++number));
    if (object.contains("step_seconds")) steps.push_back(std::move(object));
  }
  if (steps.empty()) throw ConfigError(cat(path, " has no step yet"));
  MeasuredRun run;
  for (const auto& step : steps) {
    if (!step.contains("peak_memory_bytes") || !step["peak_memory_bytes"].is_array()) continue;
    const auto& ranks = step["peak_memory_bytes"];
    run.counted_bytes.resize(std::max(run.counted_bytes.size(), ranks.size()));
    for (size_t rank = 0; rank < ranks.size(); ++rank)
      if (ranks[rank].is_object())
        run.counted_bytes[rank] = std::max(run.counted_bytes[rank], ranks[rank].value("counted", 0.0));
  }
  if (steps.size() > 1) steps.erase(steps.begin());
  run.steps = static_cast<int64_t>(steps.size());
  run.step_seconds = median_of(steps, "step_seconds");
  run.bubble_fraction = median_of(steps, "bubble_fraction");
  run.tokens_per_second = median_of(steps, "tokens_per_second");
  return run;
}

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
      {"stages wait", format_percent(forecast.step.bubble_fraction), format_percent(run.bubble_fraction), ""}};
  for (size_t rank = 0; rank < std::min(run.counted_bytes.size(), forecast.memory.size()); ++rank)
    if (run.counted_bytes[rank] > 0)
      rows.push_back({cat("memory of rank ", rank), format_bytes(forecast.memory[rank].total()),
                      format_bytes(run.counted_bytes[rank]),
                      difference(forecast.memory[rank].total(), run.counted_bytes[rank])});
  std::string text = table({cat("median of ", run.steps, " steps"), "predicted", "measured", "difference"}, rows);
  if (!candidates) return text;
  const double factor = gain(forecast, *candidates);
  return text + (factor > 1.001 ? cat("the best layout would need ", format_duration(run.step_seconds / factor),
                                      " a step, if it is mistaken by the same factor\n")
                                : "no layout promises a shorter step\n");
}

}  // namespace shardline
