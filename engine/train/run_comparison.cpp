#include "engine/train/run_comparison.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files/json_data.h"
#include "engine/observe/format.h"
#include "engine/run/median.h"

namespace shardline {
namespace {

using nlohmann::json;

// The values of one key in the lines of metrics.jsonl.
struct Column {
  const char* key;
  std::vector<double> values = {};

  void add(const json& step) {
    if (const auto value = step.find(key); value != step.end() && value->is_number())
      values.push_back(value->get<double>());
  }
  double median_value() const {
    if (values.empty()) throw DataError(cat("metrics.jsonl: no step has a number \"", key, "\""));
    return median(values);
  }
};

// Updates the maximum of each rank.
void add_counted_bytes(const json& step, std::vector<double>& most) {
  const auto ranks = step.find("peak_memory_bytes");
  if (ranks == step.end() || !ranks->is_array()) return;
  most.resize(std::max(most.size(), ranks->size()));
  for (size_t rank = 0; rank < ranks->size(); ++rank)
    if ((*ranks)[rank].is_object()) most[rank] = std::max(most[rank], (*ranks)[rank].value("counted", 0.0));
}

std::string difference(double predicted, double measured) {
  if (measured == 0) return "";
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

MeasuredRun measured_run(const std::string& output_dir) {
  const std::string path = output_dir + "/metrics.jsonl";
  std::ifstream file(path);
  if (!file) throw ConfigError(cat(path, " cannot be read; name the output_dir of a training run"));
  MeasuredRun run;
  Column seconds{"step_seconds"}, bubble{"bubble_fraction"}, rate{"tokens_per_second"};
  int64_t number = 0, steps = 0;
  for (std::string line; std::getline(file, line);) {
    const json step = parse_data_json(line, cat(path, ":", ++number));
    if (!step.contains(seconds.key)) continue;
    ++steps;
    for (Column* column : {&seconds, &bubble, &rate}) {
      if (steps == 2) column->values.clear();  // forget the first step
      column->add(step);
    }
    add_counted_bytes(step, run.counted_bytes);
  }
  if (steps == 0) throw ConfigError(cat(path, " has no step yet"));
  run.steps = std::max<int64_t>(steps - 1, 1);
  run.step_seconds = seconds.median_value();
  run.bubble_fraction = bubble.median_value();
  run.tokens_per_second = rate.median_value();
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
                                      " per step if its prediction is off by the same factor\n")
                                : "no layout is predicted to have a shorter step\n");
}

}  // namespace shardline
