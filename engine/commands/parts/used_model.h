// The model that `eval`, `predict` and `generate` use.
#pragma once
#include <string>

#include "engine/config/keys/options.h"
#include "engine/run/model_source.h"

namespace shardline {

// Throws ConfigError if the weights would be random although the config does not ask for this: a config for training
// states where the trained model is written, but not that this model is to be used.
void require_weights(const Config& config);

// Throws ConfigError if tensors or rows of the model are missing in the files and would have initial values.
void require_whole(const ModelSource& model);

// "model: models/gpt2", followed by the setting for the model in output_dir if that is another one.
std::string used_model_line(const Config& config);
// "samples: 32 tokens, the model's maximum (the default is 1024)". is_stated: whether the user states the length.
std::string samples_line(const Config& config, bool is_stated);

}  // namespace shardline
