// Texts, or pairs of texts, each with one class, several labels, or numbers.
#pragma once
#include <memory>

#include "engine/tasks/task.h"

namespace shardline {

std::unique_ptr<LabelledTask> sequence_classification(const Config& config, const HeadChoice& head,
                                                      const TokenizerPtr& tokenizer);

}  // namespace shardline
