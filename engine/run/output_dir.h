// The output directory of a training run, between an earlier run and the new one.
#pragma once
#include <filesystem>

#include "core/model/model_spec.h"
#include "engine/config/keys/options.h"
#include "engine/run/output_lock.h"

namespace shardline {

// Measured by `shardline profile`; stays where it is when a run begins.
inline constexpr const char* kProfileFile = "profile.json";

// ConfigError if another run uses it, files would be overwritten, or it cannot be made or written to; RunError if it
// lacks disk space for the run's files.
void check_output_dir(const Config& config, const ModelSpec& spec);

// Where an earlier run's model is kept while a new run has not saved its own.
std::filesystem::path previous_model(const Config& config);

// Checks, creates and locks it, for as long as the result lives. Records of an earlier run are removed; its model is
// moved to previous_model(), so that a run that fails leaves nothing that looks like its result.
[[nodiscard]] OutputLock prepare_output_dir(const Config& config, const ModelSpec& spec);

// After the new model is whole.
void remove_previous_model(const Config& config);

}  // namespace shardline
