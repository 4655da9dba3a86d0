#include <algorithm>
#include <optional>
#include <ostream>

#include "core/comm/local_communicator.h"
#include "core/error.h"
#include "engine/commands/job.h"
#include "engine/commands/parts/job_parts.h"
#include "engine/commands/parts/open_data.h"
#include "engine/commands/parts/run_checks.h"
#include "engine/config/rules/precision_rules.h"
#include "engine/config/rules/sizes.h"
#include "engine/observe/format.h"
#include "engine/train/layout_check.h"

namespace shardline {
namespace {

// Another number of microbatches, with which a loss that depends on it differs: half as many, or one for each sample. A
// program of a fixed size accepts no larger microbatches, and smaller ones only if it does not compute the loss as a
// whole.
int64_t other_microbatches(int64_t count, int64_t samples, const ModelSpec& spec) {
  if (spec.most_samples > 0) return spec.loss_of_samples ? count : samples;
  return count % 2 == 0 ? count / 2 : samples;
}

// The same training with all layers in this process: nothing is split, sharded, recomputed or offloaded.
Config in_one_process(Config config, const Layout& layout, const ModelSpec& spec) {
  config.smp = {};
  config.smp.microbatches = other_microbatches(layout.microbatches * layout.replicas, layout.global_batch(), spec);
  config.training.global_batch_size = layout.global_batch();
  config.training.per_device_train_batch_size = config.training.gradient_accumulation_steps = std::nullopt;
  config.mpi = {};
  config.runtime.communicator = CommunicatorChoice::local;
  config.cluster = config.profile = "";
  return config;
}

// The job in one process, with its data in the same order as in the layout.
struct OneProcess {
  OneProcess(const Config& of_ranks, const JobParts& of_layout, const RankContext& rank, int64_t steps)
      : config(in_one_process(of_ranks, of_layout.plan.layout, of_layout.model.spec)),
        context(alone(rank)),
        parts(make_parts(config, context)),
        data(open_data(config, parts.model, of_layout.plan.layout, context, /*with_train=*/true)),
        trainer({config, parts.plan, parts.model, parts.groups, context.device}, steps) {
    load_parameters(config, parts, trainer.parameters());
  }

  static RankContext alone(RankContext rank) {
    rank.world = rank.device_world = make_local_world();
    rank.local_rank = 0;
    rank.local_size = 1;
    rank.host_of.clear();
    rank.out = nullptr;
    return rank;
  }

  Config config;
  RankContext context;
  JobParts parts;
  JobData data;
  RankTrainer trainer;
};

std::string differences_text(const std::vector<LayoutDifference>& differences) {
  std::vector<TableRow> rows;
  for (const auto& difference : differences)
    rows.push_back({difference.what, cat(difference.largest), cat(difference.limit),
                    difference.largest > 0 ? difference.where : ""});
  return table({"relative difference", "largest", "limit", "where"}, rows);
}

}  // namespace

void check_layout(const Config& config) {
  const PlannedModel planned = plan_model(in_float64(config), configured_world_size(config));
  check_fixed_sizes(config, planned.model, planned.plan.layout, /*trains=*/true);
  check_data(config, planned, /*must_be_there=*/true);
}

void layout_job(const Config& written, int64_t steps, RankContext& context) {
  const Config config = completed_config(in_float64(written), *context.world, /*trains=*/true);
  JobParts parts = make_parts(config, context);
  if (context.out)
    *context.out << plan_text(parts.plan, context.console.columns) << "\nfloat64, " << steps
                 << (steps == 1 ? " step" : " steps") << " with this layout and in one process\n"
                 << std::flush;
  explain_memory(parts, context, /*trains=*/true, [&] {
    JobData data = open_data(config, parts.model, parts.plan.layout, context, /*with_train=*/true);
    const int64_t total = count_steps(config, data.train->steps_per_epoch());
    RankTrainer trainer({config, parts.plan, parts.model, parts.groups, context.device}, total);
    load_parameters(config, parts, trainer.parameters());
    std::optional<OneProcess> one;
    LongWork waiting(*context.world, "loading the model into one process");
    if (context.first()) one.emplace(config, parts, context, total);
    waiting.finish();
    const auto checked = one ? std::optional(CheckedRun{one->trainer, *one->data.train}) : std::nullopt;
    const auto differences = compare_with_one_process({trainer, *data.train}, checked ? &*checked : nullptr,
                                                      parts.model.spec, std::min(steps, total), *context.world);
    if (context.out) *context.out << differences_text(differences);
    if (!std::ranges::all_of(differences, &LayoutDifference::is_within))
      throw RunError("the layout's numbers differ from those of one process (see the table); report this as a bug");
    if (context.out) *context.out << "the layout gives the same numbers as one process\n";
  });
}

}  // namespace shardline
