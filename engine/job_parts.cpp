#include "engine/job_parts.h"

#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/error.h"
#include "engine/config/config.h"
#include "engine/config/learning_rate_rules.h"
#include "engine/config/recompute_rules.h"
#include "engine/data/data_files.h"
#include "engine/data/data_source.h"
#include "engine/data/token_file.h"
#include "engine/findings.h"
#include "engine/sharding.h"
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
  TokenDataOptions options{.format = config.data.format,
                           .text_column = config.data.text_column,
                           .vocab_size = spec.vocab_size,
                           .cache_folder = cache_folder(config),
                           .threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))};
  // Files of token ids need no tokenizer; for text without one the data reader says what is missing.
  const auto tokenizer = tokenizer_source(config);
  if (!config.data.tokenizer.empty() || has_tokenizer(tokenizer)) options.tokenizer = load_tokenizer(tokenizer);
  if (options.tokenizer && options.tokenizer->vocab_size() > spec.vocab_size)
    throw ConfigError(cat("/data/tokenizer: ", tokenizer_source(config), " has ids up to ",
                          options.tokenizer->vocab_size() - 1, ", but the model's vocab_size is ", spec.vocab_size,
                          "; set model.config.vocab_size to at least ", options.tokenizer->vocab_size()));
  return options;
}

DataError about_files(const std::vector<std::string>& paths, const DataError& error) {
  return DataError(cat(paths.front(), paths.size() > 1 ? ", ...: " : ": ", error.what()));
}

SampleOrderOptions sample_order(const Config& config, int64_t samples, int64_t batch, bool train) {
  const auto& t = config.training;
  return {.samples = samples,
          .global_batch = batch,
          .seed = static_cast<uint64_t>(t.data_seed.value_or(t.seed)),
          .shuffle = train && config.data.shuffle,
          .drop_last = train && t.dataloader_drop_last};
}

}  // namespace

std::string digest_of(const std::string& text) {
  return cat(std::hex, XXH3_64bits(text.data(), text.size()));
}

void require_equal(Communicator& world, const std::string& what, const std::string& text) {
  const auto all = gather_strings(world, host_name() + '\n' + text);
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
  std::ofstream out(path, std::ios::binary);
  out << schedule_svg(plan.train);
  if (!out.flush()) throw RunError(cat("cannot write ", path, ": ", std::strerror(errno)));
}

JobParts make_parts(const Config& config, const RankContext& context) {
  auto [model, planned, plan] = plan_model(config, context.world->size());
  require_equal(*context.world, "config", resolved(config).dump());
  // Hosts that are not alike may split and cut the model differently; the first rank's word counts.
  const auto splits = gather_strings(*context.world, nlohmann::json(splits_of(model.spec)).dump());
  if (splits.front() != splits[static_cast<size_t>(context.world->rank())]) {
    auto same =
        plan_model(config, context.world->size(), {}, nlohmann::json::parse(splits.front()).get<SplitChoices>());
    model = std::move(same.model);
    planned = std::move(same.planned);
    plan = std::move(same.plan);
  }
  const auto chunks = gather_strings(*context.world, nlohmann::json(plan.chunk_of_layer).dump());
  if (chunks.front() != chunks[static_cast<size_t>(context.world->rank())])
    plan = make_plan(config, planned, plan.sizes, nlohmann::json::parse(chunks.front()).get<std::vector<int>>());
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

namespace {

// The blocks of these files; unset where a text must be read to know, or a file is not there.
std::optional<int64_t> blocks_of(const Config& config, const TokenDataOptions& options,
                                 const std::vector<std::string>& paths, bool must_be_there) {
  std::vector<std::string> there = paths;
  if (!must_be_there) std::erase_if(there, [](const std::string& path) { return !is_data_file(path); });
  bool known = there.size() == paths.size();
  if (there.empty() && !paths.empty()) return {};
  int64_t tokens = 0, documents = 0;
  for (const auto& file : find_data_files(there, options.format)) {
    if (file.format == DataFormat::tokens) {
      const TokenFile ids(file.path);
      tokens += ids.size();
      documents += ids.documents();
      continue;
    }
    if (!options.tokenizer) throw missing_tokenizer(file);
    known = false;
  }
  if (!known) return {};
  try {
    return count_blocks(tokens, documents, config.data.sequence_length);
  } catch (const DataError& error) {
    throw about_files(paths, error);
  }
}

}  // namespace

void check_token_data(const Config& config, const PlannedModel& planned, bool must_be_there) {
  const auto options = token_data_options(config, planned.model.spec);
  const DataOptions& data = config.data;
  if (data.train.empty()) throw ConfigError("/data/train: nothing to train on; name a file or a list of files");
  auto blocks = blocks_of(config, options, data.train, must_be_there);
  if (!data.validation.empty()) blocks_of(config, options, data.validation, must_be_there);
  if (blocks && data.validation.empty() && data.validation_split_percentage > 0)
    *blocks -= count_validation_blocks(*blocks, data.validation_split_percentage);
  // Where the blocks are not known, the run has no more than it asks for.
  if (data.max_train_samples) blocks = std::min(*data.max_train_samples, blocks.value_or(*data.max_train_samples));
  if (!blocks) return;
  const SampleOrder order(sample_order(config, *blocks, planned.plan.sizes.global_batch, /*train=*/true));
  count_steps(config, order.batches_per_epoch());
}

void check_validation_data(const Config& config, const PlannedModel& planned) {
  const auto options = token_data_options(config, planned.model.spec);
  const bool own_files = !config.data.validation.empty();
  const auto blocks = blocks_of(config, options, own_files ? config.data.validation : config.data.train, true);
  if (blocks && !own_files) count_validation_blocks(*blocks, config.data.validation_split_percentage);
}

int64_t count_steps(const Config& config, int64_t steps_per_epoch) {
  const TrainingOptions& training = config.training;
  const int64_t steps =
      training.max_steps > 0
          ? training.max_steps
          : std::max<int64_t>(
                1, static_cast<int64_t>(std::ceil(training.num_train_epochs * static_cast<double>(steps_per_epoch))));
  try {
    learning_rate_options(training, steps);
  } catch (const ConfigError& error) {
    throw ConfigError(cat("/training/lr_scheduler_kwargs: ", error.what()));
  }
  return steps;
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
      throw about_files(paths, error);
    }
  };
  const auto source = [&](const BlockDataset& data, int64_t batch, bool train) {
    return std::make_unique<DatasetSource>(data, sample_order(config, data.size(), batch, train));
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
