// Texts some of whose tokens are hidden from the model, which predicts them.
#pragma once
#include <memory>

#include "engine/tasks/task.h"

namespace shardline {

// Throws ConfigError if the tokenizer has no mask token.
std::unique_ptr<LabelledTask> masked_lm(const Config& config, const TokenizerPtr& tokenizer);

}  // namespace shardline
