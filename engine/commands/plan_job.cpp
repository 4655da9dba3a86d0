#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files/disk_file.h"
#include "engine/commands/job.h"
#include "engine/commands/parts/job_parts.h"
#include "engine/commands/parts/run_checks.h"
#include "engine/config/config.h"
#include "engine/config/rules/model_rules.h"
#include "engine/config/rules/sizes.h"
#include "engine/observe/format.h"
#include "engine/plan/report/candidates_report.h"
#include "engine/plan/report/plan_page.h"
#include "engine/tasks/labels.h"
#include "engine/train/run_comparison.h"

namespace shardline {
namespace {

bool predicts(const Config& config, const PlanOptions& options) {
  return !config.cluster.empty() || !options.search.empty() || !options.html.empty() || !options.from_run.empty();
}

}  // namespace

std::string plan_job(const Config& config, const PlanOptions& options) {
  const PlannedModel all = plan_model(config, configured_world_size(config), options.assumed);
  const auto& [model, machines, plan] = all;
  const bool is_to_run = options.from_run.empty();  // a finished run needs no check
  if (is_to_run) check_run(config, all, RunMoment::planned);
  if (!options.svg.empty()) write_schedule_picture(plan, options.svg);
  nlohmann::json json = plan_json(plan);
  const std::string labels = labels_text(model.head);
  std::string text = (labels.empty() ? "" : table({}, {{"labels", labels}}) + "\n") + plan_text(plan, options.width);
  if (predicts(config, options)) {
    const Forecast forecast = make_forecast(config, machines, plan);
    add_forecast(json, forecast);
    if (!options.instructions) json["schedule"].erase("instructions");
    text += "\n" + forecast_text(forecast, plan);
    std::optional<Candidates> candidates;
    if (!options.search.empty()) {
      candidates =
          search_layouts(options.written.value_or(config), config, all, ranking_from(options.search), options.assumed);
      json["candidates"] = candidates_json(*candidates);
      json["search_seconds"] = candidates->found.seconds;
      text += "\n" + candidates_text(*candidates, plan.layout, forecast);
    }
    if (!options.from_run.empty()) {
      const MeasuredRun run = measured_run(options.from_run);
      json["run"] = comparison_json(forecast, run, candidates);
      text += "\n" + comparison_text(forecast, run, candidates);
      if (config.profile.empty() && plans_for_this_machine(config))
        text +=
            "note: the rates of this machine are estimates; measure them with `shardline profile`, and give the file "
            "with --profile\n";
    }
    if (!options.html.empty()) write_file(options.html, plan_page(machines, plan, forecast, candidates));
  }
  for (const auto& note : notes(config, has_accelerators(config))) text += "note: " + note + "\n";
  if (is_to_run && plans_for_this_machine(config))
    for (const auto& obstacle : obstacles_now(config, model.spec))
      text += "note: not ready to train: " + obstacle + "\n";
  return options.json ? json.dump(2) + "\n" : text;
}

Config config_of_directory(const std::string& directory, const std::vector<std::string>& overrides) {
  // A config requires data and output_dir; the commands that take a directory use neither unless they are set.
  nlohmann::json minimal = {
      {"model", {{"path", directory}}}, {"data", {{"train", directory}}}, {"output_dir", directory}};
  minimal["task"] = task_of_directory(directory);
  const auto parsed = [&](int64_t most_positions) {
    minimal["data"]["sequence_length"] = std::min<int64_t>(DataOptions().sequence_length, most_positions);
    return parse_config(minimal.dump(), directory, overrides);
  };
  constexpr int64_t kAnyLength = 2;
  const Config any = parsed(kAnyLength);  // overrides may replace its task and model
  const auto model = described_model(any.model, head_choice(any));
  if (!model || !model->mistakes.empty()) return parsed(DataOptions().sequence_length);
  return parsed(model->trace ? open_model(any).spec.max_positions : model->max_positions);
}

}  // namespace shardline
