#include "engine/commands/parts/job_parts.h"

#include <xxhash.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/comm/communicator_base.h"
#include "core/error.h"
#include "core/files/disk_file.h"
#include "engine/config/config.h"
#include "engine/config/rules/model_rules.h"
#include "engine/plan/batch_size.h"
#include "engine/plan/layout_search.h"
#include "engine/plan/tensor_splits.h"
#include "engine/run/memory_room.h"
#include "engine/tasks/labels.h"
#include "pipeline/schedule/files/schedule_file.h"
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
    throw AllRanks<RunError>(cat("the ranks do not have the same ", what, "; different from rank 0:", different,
                                 " copy the same files to all hosts"));
}

namespace {

// Decisions of the first rank for all ranks, because hosts that differ could decide differently.
struct Decisions {
  SplitChoices splits;
  Layout layout;
  std::vector<int> chunk_of_layer;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Decisions, splits, layout, chunk_of_layer)

}  // namespace

void write_schedule_picture(const Plan& plan, const std::string& path) {
  write_file(path, schedule_svg(plan.train));
}

Config with_new_tokens(const Config& config) {
  const auto source = tokenizer_source(config);
  if (config.model.path.empty() || config.model.config.contains("vocab_size")) return config;
  if (config.data.tokenizer.empty() && !has_tokenizer(source)) return config;
  const auto model = described_model(config.model, head_choice(config));
  if (!model || !model->mistakes.empty()) return config;
  Config grown = config;
  try {
    const int64_t tokens = open_tokenizer(config)->vocab_size();
    if (model->vocab_size > 0 && tokens > model->vocab_size) grown.model.config["vocab_size"] = tokens;
  } catch (const Error&) {  // opening the data reports it
  }
  return grown;
}

Config completed_config(const Config& written, Communicator& world, bool trains) {
  require_equal(world, "config", resolved(written).dump());
  Config config = written;
  std::string chosen;
  if (world.rank() == 0) {
    const Config labelled = with_labels_of_data(with_sample_length(trains ? with_new_tokens(written) : written));
    const Config numbered = with_chosen_degrees(labelled);
    if (const Config own = trains ? with_fitting_batch(numbered) : numbered; own != written)
      chosen = resolved(own).dump();
  }
  chosen = broadcast_string(world, chosen, 0);
  if (!chosen.empty())
    config = parse_config(chosen, "the config of the first rank", {}, trains ? Purpose::training : Purpose::other);
  if (world.rank() == 0) check_world(config, world);  // its host knows the allocation
  return config;
}

JobParts make_parts(const Config& config, const RankContext& context) {
  Communicator& world = *context.world;
  ModelSource model = open_model(config);
  require_equal(world, "model config", model.hf_config.dump());
  if (config.smp.pipeline.is_file())
    require_equal(world, "schedule file", nlohmann::json(read_schedule_file(config.smp.pipeline.path)).dump());

  const auto with_groups = [&](ModelSource source, std::optional<Machines> machines, Plan plan) {
    RankGroups groups = make_rank_groups(plan.layout.mesh(), context.world, context.device_world);
    groups.host_of = context.host_of;
    return JobParts{std::move(source), std::move(machines), std::move(plan), std::move(groups)};
  };
  if (world.rank() == 0) {
    check_program(config, model);
    PlannedModel planned = plan_model(std::move(model), config, world.size());
    const Decisions decisions{splits_of(planned.model.spec), planned.plan.layout, planned.plan.chunk_of_layer};
    broadcast_string(world, nlohmann::json(decisions).dump(), 0);
    return with_groups(std::move(planned.model), std::move(planned.machines), std::move(planned.plan));
  }
  const auto decisions = nlohmann::json::parse(broadcast_string(world, "", 0)).get<Decisions>();
  model.spec = make_spec(config, model, decisions.splits);
  const Layout& layout = decisions.layout;
  Plan plan = make_plan({resolve_workload(config, model.spec, layout.global_batch(), layout.on_accelerators), layout},
                        decisions.chunk_of_layer);
  return with_groups(std::move(model), std::nullopt, std::move(plan));
}

void load_parameters(const Config& config, const JobParts& parts, StageParameters& parameters,
                     const LongWork::Show& show) {
  const uint64_t seed = config.training.seed;
  const std::string digest = fill_parameters(config.model, parts.model, seed, parameters, show);
  require_equal(*parts.groups.world, "model files", digest);
}

void load_checkpoint_parameters(const std::string& checkpoint, int64_t steps, const JobParts& parts,
                                StageParameters& parameters, const LongWork::Show& show) {
  const HfDirectory directory(checkpoint);
  const NameReport names = directory.check_names(parts.model.spec);
  if (!names.missing.empty())
    throw DataError(cat(checkpoint, ": the checkpoint has no tensor ", names.missing.front(),
                        "; use the task with which it was saved"));
  if (!names.grown.empty())
    throw DataError(cat(checkpoint, ": the checkpoint has rows for fewer words than the model: ", names.grown.front(),
                        "; use the tokenizer with which it was saved"));
  require_equal(*parts.groups.world, "checkpoint", read_parameters(directory, parameters, show));
  continue_buffers(directory, parts.model, steps);
}

void explain_memory(const JobParts& parts, const RankContext& context, bool trains, const std::function<void()>& work) {
  const auto planned = [&] {
    const MemoryBytes bytes = tensor_bytes_by_rank(placed_layers(parts.plan)).at(context.world->rank());
    return trains ? bytes : MemoryBytes{.weights = bytes.weights};
  };
  explain_lack_of_memory(planned, context.device, work);
}

std::string tokenizer_source(const Config& config) {
  return config.data.tokenizer.empty() && !config.model.is_program() ? config.model.path : config.data.tokenizer;
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
