#include <ATen/ops/cat.h>

#include <ostream>

#include "core/error.h"
#include "core/files/disk_file.h"
#include "engine/commands/job.h"
#include "engine/commands/job_parts.h"
#include "engine/commands/open_data.h"
#include "engine/commands/used_model.h"
#include "engine/config/rules/precision_rules.h"
#include "engine/config/rules/sizes.h"

namespace shardline {

void check_predict(const Config& config) {
  require_weights(config);
  require_predicted_data(config);
  const Config used = in_evaluation_precision(config);
  const PlannedModel planned = plan_model(used, configured_world_size(used));
  require_whole(planned.model);
  check_predicted_data(used, planned);
}

void predict_job(const Config& written, const std::string& path, RankContext& context) {
  require_weights(written);
  require_predicted_data(written);
  const Config config = completed_config(in_evaluation_precision(written), *context.world);
  JobParts parts = make_parts(config, context);
  require_whole(parts.model);
  const PredictedData data = open_predicted_data(config, parts.model, parts.plan.layout, context);
  std::vector<at::Tensor> logits;
  explain_memory(parts, context, /*trains=*/false, [&] {
    Trainer trainer({config, parts.plan, parts.model, parts.groups, context.device}, 0);
    load_parameters(config, parts, trainer.parameters());
    trainer.evaluate(*data.source, data.source->steps_per_epoch(), [&](const at::Tensor& more) {
      if (context.first()) logits.push_back(more);
    });
  });
  if (!context.first()) return;
  std::string lines;
  int64_t rows = 0;
  data.task->predictions({data.examples, at::cat(logits), data.files}, [&](const nlohmann::json& prediction) {
    lines += prediction.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
    ++rows;
  });
  const std::string file = path.empty() ? config.output_dir + "/predictions.jsonl" : path;
  write_file(file, lines);
  if (context.out) *context.out << "wrote " << rows << " predictions to " << file << '\n';
}

}  // namespace shardline
