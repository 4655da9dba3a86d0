// Sources with targets that a model of an encoder and a decoder learns to write: summaries, translations.
#pragma once
#include <memory>

#include "engine/tasks/task.h"

namespace shardline {

std::unique_ptr<LabelledTask> seq2seq_lm(const Config& config, const TokenizerPtr& tokenizer);

}  // namespace shardline
