#include "engine/commands/job_parts.h"

#include <xxhash.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/comm/communicator_base.h"
#include "core/error.h"
#include "core/files/disk_file.h"
#include "engine/commands/findings.h"
#include "engine/config/config.h"
#include "engine/config/rules/recompute_rules.h"
#include "engine/plan/sharding.h"
#include "engine/plan/tensor_splits.h"
#include "pipeline/schedule/kinds/schedule_choice.h"
#include "pipeline/schedule/pictures/schedule_svg.h"

namespace shardline {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SplitChoice, split, why)

std::string digest_of(const std::string& text) {
  return cat(std::hex, XXH3_64bits(text.data(), text.size()));
}

void require_equal(Communicator& world, const std::string& what, const std::string& text) {
  const auto all = gather_strings(world, host_name() + '\n' + digest_of(text));
  std::string different;
  for (size_t rank = 0; rank < all.size(); ++rank)
    if (const auto cut = all[rank].find('\n'); all[rank].substr(cut + 1) != all[0].substr(all[0].find('\n') + 1))
      different += cat(" rank ", rank, " on ", all[rank].substr(0, cut), ";");
  if (!different.empty())
    throw RunError(cat("the ranks do not have the same ", what, "; different from rank 0:", different,
                       " copy the same files to all hosts"));
}

PlannedModel plan_model(const Config& config, int world_size, const Assumptions& assumed,
                        const std::optional<SplitChoices>& splits) {
  ModelSource model = open_model(config);
  const ResolvedSizes sizes = resolve_sizes(config, world_size);
  Findings findings;
  findings.check([&] { recompute_by_layer(config.smp.activation_checkpointing, model.spec); });
  findings.check([&] { asked_splits(config, model.spec); });
  findings.check([&] { sharding_of(config.smp, sizes.replicas); });
  findings.throw_all();
  model.spec = make_spec(config, model.hf_config, splits ? *splits : decide_splits(config, model, sizes, assumed));
  PlannerCase planned = planner_case(config, model.spec, sizes, assumed);
  Plan plan = make_plan(config, planned, sizes);
  return {std::move(model), std::move(planned), std::move(plan)};
}

void write_schedule_picture(const Plan& plan, const std::string& path) {
  write_file(path, schedule_svg(plan.train));
}

JobParts make_parts(const Config& config, const RankContext& context) {
  auto [model, planned, plan] = plan_model(config, context.world->size());
  require_equal(*context.world, "config", resolved(config).dump());
  // Hosts that are not alike may split and cut the model differently; the first rank's word counts.
  const std::string splits = nlohmann::json(splits_of(model.spec)).dump();
  if (const auto first = broadcast_string(*context.world, splits, 0); first != splits) {
    auto same = plan_model(config, context.world->size(), {}, nlohmann::json::parse(first).get<SplitChoices>());
    model = std::move(same.model);
    planned = std::move(same.planned);
    plan = std::move(same.plan);
  }
  const std::string chunks = nlohmann::json(plan.chunk_of_layer).dump();
  if (const auto first = broadcast_string(*context.world, chunks, 0); first != chunks)
    plan = make_plan(config, planned, plan.sizes, nlohmann::json::parse(first).get<std::vector<int>>());
  if (is_schedule_file(config.smp.pipeline))
    require_equal(*context.world, "schedule file", digest_of(nlohmann::json(plan.train).dump()));
  RankGroups groups = make_rank_groups(plan.mesh, context.world, context.device_world);
  groups.host_of = context.host_of;
  return {std::move(model), std::move(planned), std::move(plan), std::move(groups)};
}

void load_parameters(const Config& config, const JobParts& parts, StageParameters& parameters,
                     const LongWork::Show& show) {
  const auto seed = static_cast<uint64_t>(config.training.seed);
  const std::string digest = fill_parameters(config.model, parts.model, seed, parameters, show);
  require_equal(*parts.groups.world, "model files", digest);
}

std::string tokenizer_source(const Config& config) {
  return config.data.tokenizer.empty() ? config.model.path : config.data.tokenizer;
}

TokenizerPtr open_tokenizer(const Config& config) {
  const auto source = tokenizer_source(config);
  std::error_code ignored;
  if (source != "bytes" && !std::filesystem::exists(source, ignored))
    throw ConfigError(
        cat("/data/tokenizer: \"", source, "\" is neither \"bytes\" nor a file or directory that exists; name one"));
  return load_tokenizer(source);
}

TokenizerPtr require_tokenizer(const Config& config) {
  if (tokenizer_source(config).empty())
    throw ConfigError("/data/tokenizer: needed to read prompts; name a directory, a tokenizer.json or \"bytes\"");
  return open_tokenizer(config);
}

}  // namespace shardline
