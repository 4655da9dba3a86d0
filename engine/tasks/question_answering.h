// Questions whose answers are parts of a context, as in SQuAD. A context that is longer than an example becomes several
// windows that overlap.
#pragma once
#include <memory>

#include "engine/tasks/task.h"

namespace shardline {

// A note for the user about labelled files: the first question without an answer, unless data.version_2_with_negative
// allows such questions. Empty if there is none. Tokenised rows, of which each is a window, do not count.
std::string unanswered_note(const Config& config, const std::vector<DataFile>& files);

std::unique_ptr<LabelledTask> question_answering(const Config& config, const TokenizerPtr& tokenizer);

}  // namespace shardline
