// Prompts with completions: a causal language model learns to predict only the completions.
#pragma once
#include <memory>

#include "engine/tasks/task.h"

namespace shardline {

std::unique_ptr<LabelledTask> completions(const Config& config, const TokenizerPtr& tokenizer);

}  // namespace shardline
