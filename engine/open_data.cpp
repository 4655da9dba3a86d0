#include "engine/open_data.h"

#include <iostream>
#include <optional>
#include <tuple>

#include "core/error.h"
#include "core/long_work.h"
#include "engine/job_parts.h"

namespace shardline {
namespace {

// The path of the cache on this rank's host.
std::filesystem::path prepare_on_each_host(TokenDataOptions options, RankContext& context, Progress& progress) {
  const auto rank = static_cast<size_t>(context.world->rank());
  const auto maker = static_cast<size_t>(context.host_of.empty() ? 0 : context.host_of[rank]);
  LongWork work(*context.world, "token cache", [&](int64_t done, int64_t total) {
    if (context.out) progress.update(done, total, total > 0 ? "reading text" : "waiting for another job's token cache");
  });
  std::string path;
  if (rank == maker) {
    options.progress = [&](int64_t done, int64_t total) { work.report(done, total); };
    path = prepare_token_cache(options).string();
  }
  work.finish();
  return gather_strings(*context.world, path)[maker];
}

}  // namespace

TokenData open_data(const Config& config, const ModelSource& model, const ResolvedSizes& sizes, RankContext& context,
                    bool with_train) {
  TokenDataOptions options = token_data_options(config, model.spec);
  Progress progress(context.out ? *context.out : std::cerr, context.console, {});

  std::string digest;
  const auto blocks = [&](const std::vector<std::string>& paths) {
    options.paths = paths;
    const auto cache = open_token_cache(prepare_on_each_host(options, context, progress));
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
                                 .loader_batches = train ? sizes.loader_batches : 1,
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
