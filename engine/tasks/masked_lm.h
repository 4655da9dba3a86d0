// Texts in which some tokens are masked, which the model predicts.
#pragma once
#include <memory>

#include "engine/tasks/task.h"

namespace shardline {

// Throws ConfigError if the tokenizer has no mask token.
std::unique_ptr<LabelledTask> masked_lm(const Config& config, const TokenizerPtr& tokenizer);

}  // namespace shardline
