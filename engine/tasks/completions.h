// Prompts with completions, of which a causal language model learns to predict the completions alone.
#pragma once
#include <memory>

#include "engine/tasks/task.h"

namespace shardline {

std::unique_ptr<LabelledTask> completions(const Config& config, const TokenizerPtr& tokenizer);

}  // namespace shardline
