#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/config/config.h"
#include "engine/job.h"
#include "engine/job_parts.h"

namespace shardline {

std::string plan_job(const Config& config, bool json, int width, const std::string& svg) {
  const Plan plan = plan_model(config, configured_world_size(config)).plan;
  if (!svg.empty()) write_schedule_picture(plan, svg);
  return json ? plan_json(plan).dump(2) + "\n" : plan_text(plan, width);
}

Config config_of_directory(const std::string& directory, const std::vector<std::string>& overrides) {
  // data and output_dir are required of a config file; the commands that take a directory use neither unless set.
  const nlohmann::json minimal = {
      {"model", {{"path", directory}}}, {"data", {{"train", directory}}}, {"output_dir", directory}};
  return parse_config(minimal.dump(), directory, overrides);
}

}  // namespace shardline
