// How a config uses an exported program or a traced model.
#pragma once
#include <string>
#include <vector>

#include "engine/config/keys/options.h"
#include "models/program/program.h"

namespace shardline {

// Whether model.config of a program may have this key: those that name labels, and decoder_start_token_id.
bool is_program_key(const std::string& key);

// Whether samples are columns of tensors, which model.inputs assigns to the arguments of an exported program, or which
// a traced model has as arguments.
bool reads_columns(const Config& config);

// The arguments of a traced model that are columns of tensors.
std::vector<TensorColumn> traced_columns(const Config& config);

// The task, model.inputs and model.loss. keys: the model's config, for decoder_start_token_id. Throws a ConfigError
// for values that do not have the right form.
ProgramUse program_use(const Config& config, const nlohmann::json& keys);

}  // namespace shardline
