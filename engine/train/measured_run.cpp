#include "engine/train/measured_run.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.h"
#include "core/files/json_data.h"
#include "engine/run/median.h"

namespace shardline {
namespace {

using nlohmann::json;

std::optional<double> number_in(const json& object, const char* key) {
  const auto value = object.find(key);
  return value != object.end() && value->is_number() ? std::optional(value->get<double>()) : std::nullopt;
}

// The values of one key in the lines of metrics.jsonl.
struct NumbersOf {
  const char* key;
  std::vector<double> values = {};

  void add(const json& step) {
    if (const auto number = number_in(step, key)) values.push_back(*number);
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
    if ((*ranks)[rank].is_object()) most[rank] = std::max(most[rank], number_in((*ranks)[rank], "counted").value_or(0));
}

}  // namespace

MeasuredRun measured_run(const std::string& output_dir) {
  const std::string path = output_dir + "/metrics.jsonl";
  std::ifstream file(path);
  if (!file) throw ConfigError(cat(path, " cannot be read; name the output_dir of a training run"));
  MeasuredRun run;
  NumbersOf seconds{"step_seconds"}, bubble{"bubble_fraction"}, rate{"tokens_per_second"};
  int64_t number = 0, steps = 0;
  for (std::string line; std::getline(file, line);) {
    const json step = parse_data_json(line, cat(path, ":", ++number));
    if (!step.contains(seconds.key)) continue;
    ++steps;
    for (NumbersOf* numbers : {&seconds, &bubble, &rate}) {
      if (steps == 2) numbers->values.clear();  // forget the first step
      numbers->add(step);
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

}  // namespace shardline
