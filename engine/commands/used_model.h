// The model that `eval` and `generate` use.
#pragma once
#include <string>

#include "engine/config/keys/options.h"

namespace shardline {

// ConfigError where its weights would be random although the config does not ask for that: a config for training says
// where the trained model goes, not that it is to be used.
void require_weights(const Config& config);

// "model: out"; with the model in output_dir where that is another one.
std::string used_model_line(const Config& config);
// "samples: 32 tokens, the model's maximum"
std::string samples_line(const Config& config);

}  // namespace shardline
