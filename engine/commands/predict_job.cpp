#include "engine/commands/job.h"
#include "engine/commands/parts/evaluation.h"
#include "engine/commands/parts/job_parts.h"
#include "engine/commands/parts/open_data.h"
#include "engine/commands/parts/used_model.h"
#include "engine/config/rules/precision_rules.h"
#include "engine/config/rules/sizes.h"

namespace shardline {

void check_predict(const Config& config) {
  require_weights(config);
  require_predicted_data(config);
  const Config used = in_evaluation_precision(config);
  const PlannedModel planned = plan_model(used, configured_world_size(used));
  require_whole(planned.model);
  check_predicted_data(used, planned, /*must_be_there=*/true);
}

void predict_job(const Config& written, const std::string& path, RankContext& context) {
  require_weights(written);
  require_predicted_data(written);
  const Config config = completed_config(in_evaluation_precision(written), *context.world, /*trains=*/false);
  JobParts parts = make_parts(config, context);
  require_whole(parts.model);
  const PredictedData data = open_predicted_data(config, parts.model, parts.plan.layout, context);
  const std::string file = path.empty() ? predictions_file(config) : path;
  explain_memory(parts, context, /*trains=*/false, [&] {
    RankTrainer trainer({config, parts.plan, parts.model, parts.groups, context.device}, 0);
    load_parameters(config, parts, trainer.parameters());
    write_predictions(trainer, data, file, context);
  });
}

}  // namespace shardline
