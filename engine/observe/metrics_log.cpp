#include "engine/observe/metrics_log.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/files/disk_file.h"
#include "core/files/regular_file.h"

namespace shardline {
namespace {

// A line that is being made; keys keep the order in which they are set.
class Line {
 public:
  template <class Value>
  void set(const std::string& key, const Value& value) {
    json_[key] = value;
  }

  void set(const std::string& key, double value) {
    if (std::isfinite(value)) {
      json_[key] = value;
    } else {
      json_[key] = nullptr;
      non_finite_[key] = std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
    }
  }

  std::string text() && {
    if (!non_finite_.empty()) json_["non_finite"] = std::move(non_finite_);
    return json_.dump() + "\n";
  }

 private:
  nlohmann::ordered_json json_, non_finite_;
};

}  // namespace

void keep_metrics_until(const std::string& path, int64_t step) {
  std::istringstream lines(read_regular_file(path, std::numeric_limits<int64_t>::max()));
  std::string kept;
  for (std::string line; std::getline(lines, line) && !lines.eof();) {
    const auto record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (record.is_object() && record.contains("step") && record["step"].is_number() && record["step"] <= step)
      kept += line + "\n";
  }
  write_file(path, kept);
}

void MetricsLog::add(const StepMetrics& metrics) {
  Line line;
  line.set("step", metrics.step);
  line.set("epoch", metrics.epoch);
  line.set("loss", metrics.loss);
  line.set("grad_norm", metrics.grad_norm);
  line.set("learning_rate", metrics.learning_rate);
  if (metrics.loss_scale) line.set("loss_scale", metrics.loss_scale->scale);
  if (metrics.loss_scale) line.set("overflow", metrics.loss_scale->overflowed);
  line.set("tokens", metrics.tokens);
  line.set("step_seconds", metrics.step_seconds);
  line.set("tokens_per_second", metrics.tokens_per_second);
  line.set("samples_per_second", metrics.samples_per_second);
  line.set("bubble_fraction", metrics.bubble_fraction);
  line.set("exposed_communication_fraction", metrics.exposed_communication_fraction);
  nlohmann::ordered_json memory = nlohmann::ordered_json::array();
  for (const RankMemory& rank : metrics.peak_memory_bytes) {
    memory.push_back({{"counted", rank.counted}, {"resident", rank.resident}});
  }
  line.set("peak_memory_bytes", memory);
  file_.write(std::move(line).text());
}

void MetricsLog::add(const EvaluationMetrics& metrics) {
  Line line;
  line.set("step", metrics.step);
  line.set("epoch", metrics.epoch);
  for (const auto& [name, value] : metrics.values) line.set(name, value);
  file_.write(std::move(line).text());
}

}  // namespace shardline
