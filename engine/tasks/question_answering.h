// Questions whose answers are parts of a context, as in SQuAD. A context that is longer than an example becomes several
// windows that overlap.
#pragma once
#include <memory>

#include "engine/tasks/task.h"

namespace shardline {

std::unique_ptr<LabelledTask> question_answering(const Config& config, const TokenizerPtr& tokenizer);

}  // namespace shardline
