#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/config/config.h"
#include "engine/job.h"
#include "engine/model_source.h"
#include "engine/plan.h"

namespace shardline {

std::string plan_job(const Config& config, bool json, int width) {
  const bool sequence_parallel = config.smp.optimize == "memory" && config.smp.tensor_parallel_degree > 1;
  const ModelSource model = open_model(config.model, sequence_parallel);
  const Plan plan = make_plan(config, model.spec, configured_world_size(config));
  return json ? plan_json(plan).dump(2) + "\n" : plan_text(plan, width);
}

Config config_of_directory(const std::string& directory, const std::vector<std::string>& overrides) {
  // data and output_dir are required of a config file; the commands that take a directory use neither unless set.
  const nlohmann::json minimal = {{"model", {{"path", directory}}}, {"data", {{"train", directory}}}, {"output_dir", directory}};
  return parse_config(minimal.dump(), directory, overrides);
}

}  // namespace shardline
