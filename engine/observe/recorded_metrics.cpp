#include "engine/observe/recorded_metrics.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files/json_data.h"

namespace shardline {
namespace {

using nlohmann::json;

constexpr size_t kMostRecordedRanks = 1 << 20;

// One line, whose numbers may be null with a word in "non_finite".
class RecordLine {
 public:
  RecordLine(const std::string& text, const std::string& where)
      : json_(parse_data_json(text, where)), value_(json_, where) {}

  const json& object() const { return json_; }
  bool has(const std::string& key) const { return json_.contains(key); }
  int64_t count(const std::string& key) const {
    return value_.has(key) ? value_.at(key).require(json_integer(0, 9007199254740991)).get<int64_t>() : 0;
  }
  // A key that is missing reads as 0.
  double number(const std::string& key) const {
    if (!has(key)) return 0;
    if (!json_[key].is_null()) return value_.at(key).require(json_number(-kAny, kAny)).get<double>();
    const json words = json_.value("non_finite", json::object());
    const json word = words.is_object() ? words.value(key, json()) : json();
    return word == "inf" ? kAny : word == "-inf" ? -kAny : std::numeric_limits<double>::quiet_NaN();
  }
  std::vector<RankMemory> memory() const {
    std::vector<RankMemory> ranks;
    if (!value_.has("peak_memory_bytes")) return ranks;
    const auto items = value_.at("peak_memory_bytes").items();
    if (items.size() > kMostRecordedRanks)
      value_.at("peak_memory_bytes").fail(cat("has more than ", kMostRecordedRanks, " ranks"));
    for (const auto& item : items) {
      const auto bytes = [&](const char* key) {
        return item.has(key) ? item.at(key).require(json_integer(0, 9007199254740991)).get<int64_t>() : 0;
      };
      item.require(json_object());
      ranks.push_back({bytes("counted"), bytes("resident")});
    }
    return ranks;
  }

 private:
  static constexpr double kAny = std::numeric_limits<double>::infinity();
  json json_;
  JsonValue value_;
};

StepMetrics step_in(const RecordLine& line) {
  StepMetrics step{.step = line.count("step"),
                   .epoch = line.number("epoch"),
                   .loss = line.number("loss"),
                   .grad_norm = line.number("grad_norm"),
                   .learning_rate = line.number("learning_rate"),
                   .tokens = line.count("tokens"),
                   .step_seconds = line.number("step_seconds"),
                   .tokens_per_second = line.number("tokens_per_second"),
                   .samples_per_second = line.number("samples_per_second"),
                   .bubble_fraction = line.number("bubble_fraction"),
                   .exposed_communication_fraction = line.number("exposed_communication_fraction")};
  if (line.has("loss_scale"))
    step.loss_scale = LossScale{line.number("loss_scale"), line.object().value("overflow", json()) == true};
  return step;
}

EvaluationMetrics evaluation_in(const RecordLine& line) {
  EvaluationMetrics evaluation{.step = line.count("step"), .epoch = line.number("epoch")};
  for (const auto& [key, value] : line.object().items())
    if (key.starts_with("eval_")) evaluation.values.emplace_back(key, line.number(key));
  return evaluation;
}

}  // namespace

RecordedMetrics read_metrics(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw DataError(cat(path, " cannot be read; name the output_dir of a training run"));
  RecordedMetrics metrics;
  int64_t number = 0;
  for (std::string text; std::getline(file, text) && !file.eof();) {
    const RecordLine line(text, cat(path, ":", ++number));
    if (!line.has("step_seconds")) {
      metrics.evaluations.push_back(evaluation_in(line));
      continue;
    }
    metrics.steps.push_back(step_in(line));
    const auto memory = line.memory();
    metrics.most_memory.resize(std::max(metrics.most_memory.size(), memory.size()));
    for (size_t rank = 0; rank < memory.size(); ++rank) {
      RankMemory& most = metrics.most_memory[rank];
      most = {std::max(most.counted, memory[rank].counted), std::max(most.resident, memory[rank].resident)};
    }
  }
  return metrics;
}

}  // namespace shardline
