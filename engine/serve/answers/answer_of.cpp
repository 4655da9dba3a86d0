#include "core/error.h"
#include "core/files/json_reader.h"
#include "engine/serve/answers/answers.h"

namespace shardline {
namespace {

// Throws DataError for a request such as {"input": ...}, which would otherwise count as an input itself.
void require_no_misspelt_inputs(const Invocation& request) {
  const nlohmann::json& input = request.inputs().json();
  if (!input.is_object()) return;
  for (const auto& [key, value] : input.items())
    if (!nearest_word(key, {"inputs"}).empty())
      throw DataError(
          json_mistake(cat("the request: /", json_escaped(key)), "unknown key", &value, "did you mean inputs?"));
}

}  // namespace

nlohmann::json answer_of(const Invocation& request, const ServedModel& model) {
  require_no_misspelt_inputs(request);
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
    case HeadChoice::Kind::seq2seq_lm:  // only programs have this head, and they are not served
      break;
  }
  return nullptr;
}

}  // namespace shardline
