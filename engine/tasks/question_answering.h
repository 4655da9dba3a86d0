// Questions whose answers are parts of a context, as in SQuAD. A context that is longer than an example becomes several
// windows that overlap.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "engine/tasks/task.h"

namespace shardline {

// Notes for the user about labelled files: the first question without an answer, unless data.version_2_with_negative
// allows such questions; and how many questions have a first answer that is not the text at its answer_start, by which
// they are trained, with the first such row. Tokenised rows, of which each is a window, do not count.
std::vector<std::string> answer_notes(const Config& config, const std::vector<DataFile>& files);

std::unique_ptr<LabelledTask> question_answering(const Config& config, const TokenizerPtr& tokenizer);

}  // namespace shardline
