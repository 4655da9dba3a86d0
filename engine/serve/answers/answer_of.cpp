#include "engine/serve/answers/answers.h"

namespace shardline {

nlohmann::json answer_of(const Invocation& request, const ServedModel& model) {
  switch (model.facts().head.kind) {
    case HeadChoice::Kind::causal_lm:
      return generated_texts(request, model);
    case HeadChoice::Kind::masked_lm:
      return filled_masks(request, model);
    case HeadChoice::Kind::sequence_classification:
      return classified_texts(request, model);
    case HeadChoice::Kind::token_classification:
      return tagged_tokens(request, model);
    case HeadChoice::Kind::question_answering:
      return answered_questions(request, model);
    case HeadChoice::Kind::seq2seq_lm:  // of programs, which are not served
      break;
  }
  return nullptr;
}

}  // namespace shardline
