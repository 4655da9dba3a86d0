#include "engine/job_parts.h"

#include <unistd.h>
#include <xxhash.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/error.h"
#include "engine/config/config.h"
#include "engine/config/optimizer_rules.h"
#include "engine/data/data_files.h"
#include "engine/tensor_splits.h"
#include "pipeline/schedule_choice.h"
#include "pipeline/schedule_svg.h"

namespace shardline {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SplitChoice, split, why)

namespace {

std::string host_name() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

std::filesystem::path cache_folder(const Config& config) {
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg && *xdg) return std::filesystem::path(xdg) / "shardline";
  if (const char* home = std::getenv("HOME"); home && *home)
    return std::filesystem::path(home) / ".cache" / "shardline";
  return std::filesystem::path(config.output_dir) / ".cache";
}

bool has_tokenizer(const std::string& directory) {
  return std::filesystem::exists(directory + "/tokenizer.json") || std::filesystem::exists(directory + "/vocab.json");
}

// With all that is wrong in `config` for the model; without the paths.
TokenDataOptions token_data_options(const Config& config, const ModelSpec& spec) {
  if (config.data.sequence_length > spec.max_positions)
    throw ConfigError(cat("/data/sequence_length: must be at most the model's n_positions (", spec.max_positions,
                          "); got ", config.data.sequence_length));
  TokenDataOptions options{.format = config.data.format,
                           .text_column = config.data.text_column,
                           .vocab_size = spec.vocab_size,
                           .cache_folder = cache_folder(config),
                           .threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))};
  // Files of token ids need no tokenizer; for text without one the data reader says what is missing.
  const auto tokenizer = tokenizer_source(config);
  if (!config.data.tokenizer.empty() || has_tokenizer(tokenizer)) options.tokenizer = load_tokenizer(tokenizer);
  if (options.tokenizer && options.tokenizer->vocab_size() > spec.vocab_size)
    throw ConfigError(cat("the tokenizer ", tokenizer_source(config), " has ids up to ",
                          options.tokenizer->vocab_size() - 1, ", but the model's vocab_size is ", spec.vocab_size,
                          "; set model.config.vocab_size to at least ", options.tokenizer->vocab_size()));
  return options;
}

}  // namespace

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
  const bool sequence_parallel = config.smp.optimize == "memory" && config.smp.tensor_parallel_degree > 1;
  ModelSource model = open_model(config.model, sequence_parallel);
  exclude_from_decay(config.training.no_decay_patterns, model.spec);
  const ResolvedSizes sizes = resolve_sizes(config, world_size);
  model.spec = with_splits(model, sequence_parallel, splits ? *splits : decide_splits(config, model, sizes, assumed));
  PlannerCase planned = planner_case(config, model.spec, sizes, assumed);
  Plan plan = make_plan(config, planned, sizes);
  return {std::move(model), std::move(planned), std::move(plan)};
}

void write_schedule_picture(const Plan& plan, const std::string& path) {
  std::ofstream out(path, std::ios::binary);
  out << schedule_svg(plan.train);
  if (!out.flush()) throw RunError(cat("cannot write ", path, ": ", std::strerror(errno)));
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

std::string tokenizer_source(const Config& config) {
  return config.data.tokenizer.empty() ? config.model.path : config.data.tokenizer;
}

TokenizerPtr require_tokenizer(const Config& config) {
  const auto source = tokenizer_source(config);
  if (source.empty())
    throw ConfigError("/data/tokenizer: needed to read prompts; name a directory, a tokenizer.json or \"bytes\"");
  return load_tokenizer(source);
}

void check_token_data(const Config& config, const ModelSpec& spec, bool with_train) {
  const auto options = token_data_options(config, spec);
  const auto& [train, validation] = std::tie(config.data.train, config.data.validation);
  if (with_train || validation.empty()) find_data_files(train, options.format);
  if (!validation.empty()) find_data_files(validation, options.format);
}

TokenData open_data(const Config& config, const ModelSource& model, const ResolvedSizes& sizes, RankContext& context,
                    bool with_train) {
  TokenDataOptions options = token_data_options(config, model.spec);
  Progress progress(context.out ? *context.out : std::cerr, context.console, {});
  if (context.out)
    options.progress = [&](int64_t done, int64_t total) { progress.update(done, total, "reading text"); };

  std::string digest;
  const auto blocks = [&](const std::vector<std::string>& paths) {
    options.paths = paths;
    std::filesystem::path path;
    // One rank of a host makes the cache; the others find it.
    if (context.local_rank == 0) path = prepare_token_cache(options);
    context.world->barrier({.what = "token cache", .timeout = options.lock_limit});
    if (context.local_rank != 0) path = prepare_token_cache(options);
    const auto cache = open_token_cache(path);
    digest += cache->digest();
    try {
      return BlockDataset(cache, config.data.sequence_length);
    } catch (const DataError& error) {
      throw DataError(cat(paths.front(), paths.size() > 1 ? ", ...: " : ": ", error.what()));
    }
  };
  const auto source = [&](const BlockDataset& data, int64_t batch, bool train) {
    const auto& t = config.training;
    return std::make_unique<DatasetSource>(
        data, SampleOrderOptions{.global_batch = batch,
                                 .seed = static_cast<uint64_t>(t.data_seed.value_or(t.seed)),
                                 .shuffle = train && config.data.shuffle,
                                 .drop_last = train && t.dataloader_drop_last});
  };

  std::optional<BlockDataset> train, validation;
  const bool split = config.data.validation.empty() && config.data.validation_split_percentage > 0;
  if (with_train || split) train = blocks(config.data.train);
  if (split) std::tie(train, validation) = train->split_validation(config.data.validation_split_percentage);
  if (!config.data.validation.empty()) validation = blocks(config.data.validation);
  if (train && config.data.max_train_samples) train = train->first(*config.data.max_train_samples);
  if (validation && config.data.max_eval_samples) validation = validation->first(*config.data.max_eval_samples);
  progress.finish();

  TokenData data{.digest = digest};
  if (train && with_train) data.train = source(*train, sizes.global_batch, true);
  if (validation) data.validation = source(*validation, sizes.eval_replica_batch * sizes.replicas, false);
  require_equal(*context.world, "data", digest);
  return data;
}

}  // namespace shardline
