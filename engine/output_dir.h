// The output directory of a training run, between an earlier run and the new one.
#pragma once
#include "core/model_spec.h"
#include "engine/config/options.h"

namespace shardline {

// Measured by `shardline profile`; stays where it is when a run begins.
inline constexpr const char* kProfileFile = "profile.json";

// ConfigError when files of somebody would be overwritten; RunError when it cannot be written or lacks the room for the
// model's files.
void check_output_dir(const Config& config, const ModelSpec& spec);

// Checks and makes it. What an earlier run recorded is removed; its model moves to previous-model/, where it stays
// whole until the new one is, so that a run that fails leaves nothing that looks like its result.
void prepare_output_dir(const Config& config, const ModelSpec& spec);

// After the new model is whole.
void remove_previous_model(const Config& config);

}  // namespace shardline
