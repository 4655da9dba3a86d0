#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/error.h"
#include "engine/commands/job.h"
#include "engine/commands/parts/evaluation.h"
#include "engine/commands/parts/job_parts.h"
#include "engine/commands/parts/open_data.h"
#include "engine/commands/parts/run_checks.h"
#include "engine/commands/parts/used_model.h"
#include "engine/config/rules/precision_rules.h"
#include "engine/config/rules/sizes.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

// Throws ConfigError if the file cannot be written there. With several hosts, the first rank may be on another one.
void check_file(const Config& config, const std::string& path) {
  if (used_hosts(config) > 1) return;
  const char* const key = path.empty() ? "/output_dir" : "--output";
  const fs::path file = fs::absolute(path.empty() ? predictions_file(config) : path), folder = file.parent_path();
  std::error_code ignored;
  if (fs::is_directory(file, ignored))
    throw ConfigError(cat(key, ": ", file.string(), " is a directory; name another file with --output"));
  if (!fs::is_directory(folder, ignored))
    throw ConfigError(cat(key, ": there is no directory ", folder.string(),
                          " for the predictions; create it, or name another file with --output"));
  if (access(folder.c_str(), W_OK | X_OK) != 0)
    throw ConfigError(cat(key, ": cannot write to ", folder.string(), ": ", std::strerror(errno),
                          "; name another file with --output"));
}

}  // namespace

void check_predict(const Config& config, const std::string& path) {
  require_weights(config);
  require_predicted_data(config);
  check_file(config, path);
  const Config used = in_evaluation_precision(config);
  const PlannedModel planned = plan_model(used, configured_world_size(used));
  require_whole(planned.model);
  check_fixed_sizes(used, planned.model, planned.plan.layout, /*trains=*/false);
  check_predicted_data(used, planned, /*must_be_there=*/true);
}

void predict_job(const Config& written, const std::string& path, RankContext& context) {
  require_weights(written);
  require_predicted_data(written);
  const Config config = completed_config(in_evaluation_precision(written), *context.world, /*trains=*/false);
  JobParts parts = make_parts(config, context);
  require_whole(parts.model);
  check_fixed_sizes(config, parts.model, parts.plan.layout, /*trains=*/false);
  const PredictedData data = open_predicted_data(config, parts.model, parts.plan.layout, context);
  const std::string file = path.empty() ? predictions_file(config) : path;
  explain_memory(parts, context, /*trains=*/false, [&] {
    RankTrainer trainer({config, parts.plan, parts.model, parts.groups, context.device}, 0);
    load_parameters(config, parts, trainer.parameters());
    write_predictions(trainer, data, file, context);
  });
}

}  // namespace shardline
