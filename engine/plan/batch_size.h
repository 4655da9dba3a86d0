// Batch sizes that fit the memory (training.auto_find_batch_size).
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "engine/config/keys/options.h"
#include "engine/plan/machines.h"

namespace shardline {

// Returns the config unchanged unless it asks for a batch size that fits. Otherwise returns it with the first of these
// sizes for which the plan fits the memory of its machines: the config's size, half of it, half of that, and so on. A
// run that continues from a checkpoint begins with the checkpoint's size, if that is one of them. Throws ConfigError if
// no size fits.
Config with_fitting_batch(const Config& config, const Assumptions& assumed = {});

// The config with at most half of the samples in a microbatch and the same number of microbatches. The global batch
// stays if the config states it, because there are more accumulation steps; otherwise it becomes smaller. Unset if the
// batch cannot be divided further.
std::optional<Config> with_half_batch(const Config& config);

// The settings for half of the batch, for the next attempt of a job that ran out of memory. Unset as above.
std::optional<std::vector<std::string>> settings_for_half_batch(const Config& failed);

// "per_device_train_batch_size 8 -> 4, accumulation steps 1 -> 2; the global batch stays 16"
std::string batch_changes(const Config& from, const Config& to);

}  // namespace shardline
