// Words with a tag each, as in the recognition of named entities.
#pragma once
#include <memory>

#include "engine/tasks/task.h"

namespace shardline {

std::unique_ptr<LabelledTask> token_classification(const Config& config, const HeadChoice& head,
                                                   const TokenizerPtr& tokenizer);

}  // namespace shardline
