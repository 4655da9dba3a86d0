#include "engine/report/run_history.h"

#include <filesystem>

#include "core/error.h"
#include "core/files/json_data.h"
#include "engine/config/config.h"
#include "engine/plan/forecast.h"
#include "engine/plan/plan.h"
#include "engine/tasks/class_balance.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string label_counts_in(const std::string& resolved_config) {
  const json file = read_data_json(resolved_config);
  const JsonValue root(file, resolved_config);
  if (!root.has("derived") || !root.at("derived").has("label_counts")) return "";
  return describe_recorded_labels(root.at("derived").at("label_counts"));
}

}  // namespace

std::optional<double> RunHistory::planned_bubble() const {
  const auto found = plan.is_object() ? plan.find("bubble_fraction") : plan.end();
  return plan.is_object() && found != plan.end() && found->is_number() ? std::optional(found->get<double>())
                                                                       : std::nullopt;
}

std::string RunHistory::layout() const {
  try {
    const JsonValue file(plan, directory + "/plan.json");
    const JsonValue mesh = file.at("mesh");
    return cat("D=", mesh.at("d").integer(1), " P=", mesh.at("p").integer(1), " T=", mesh.at("t").integer(1),
               ", global batch ", file.at("sizes").at("global_batch").integer(1));
  } catch (const DataError&) {
    return "";
  }
}

RunHistory read_run(const std::string& directory, const std::string& name) {
  const std::string config = directory + "/config.resolved.json", metrics = directory + "/metrics.jsonl";
  for (const auto& file : {config, metrics})
    if (!fs::exists(file))
      throw ConfigError(cat(directory, " has no ", fs::path(file).filename().string(),
                            "; name the output_dir of a training run or of a study"));
  RunHistory run{.name = name, .directory = directory, .config = read_config(config), .metrics = read_metrics(metrics)};
  try {
    run.plan = read_data_json(directory + "/plan.json");
  } catch (const DataError& error) {
    run.notes.push_back(cat("plan.json: ", error.what()));
  }
  try {
    run.label_counts = label_counts_in(config);
  } catch (const DataError& error) {
    run.notes.push_back(cat("label counts: ", error.what()));
  }
  return run;
}

std::optional<std::vector<MemoryBytes>> planned_memory(RunHistory& run) {
  try {
    const JsonValue file(run.plan, run.directory + "/plan.json");
    const int ranks = file.at("mesh").at("size").integer(1);
    const PlannedModel planned = plan_model(run.config, ranks);
    return make_forecast(run.config, planned.machines, planned.plan).memory;
  } catch (const Error& error) {
    run.notes.push_back(cat("planned memory: ", error.what()));
    return {};
  }
}

}  // namespace shardline
