#include "engine/tasks/task.h"

#include "core/error.h"
#include "engine/tasks/completions.h"
#include "engine/tasks/masked_lm.h"
#include "engine/tasks/question_answering.h"
#include "engine/tasks/sequence_classification.h"
#include "engine/tasks/token_classification.h"

namespace shardline {

bool reads_text(const Config& config) {
  return config.task == Task::causal_lm && !config.data.completion_only_loss;
}

std::unique_ptr<LabelledTask> make_task(const Config& config, const HeadChoice& head, const TokenizerPtr& tokenizer) {
  switch (config.task) {
    case Task::causal_lm:
      return reads_text(config) ? nullptr : completions(config, tokenizer);
    case Task::masked_lm:
      return masked_lm(config, tokenizer);
    case Task::sequence_classification:
      return sequence_classification(config, head, tokenizer);
    case Task::token_classification:
      return token_classification(config, head, tokenizer);
    case Task::question_answering:
      return question_answering(config, tokenizer);
  }
  SL_ASSERT(false, "no such task");
}

}  // namespace shardline
