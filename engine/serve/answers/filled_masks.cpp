#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "engine/serve/answers/answers.h"
#include "engine/serve/answers/request_text.h"
#include "tensor_parallel/ops/cross_entropy.h"

namespace shardline {
namespace {

using nlohmann::json;

// The words for one mask, the most probable first.
json words_for(const Example& example, size_t place, bool is_only, std::span<const double> best, int64_t most,
               const Tokenizer& tokenizer) {
  json words = json::array();
  for (int64_t i = 0; i < most && std::isfinite(best[kBestWords + i]); ++i) {
    const int32_t word = best[i];
    std::vector<int32_t> ids = example.ids;
    ids[place] = word;
    // Without special tokens, unless masks would be among them.
    if (is_only) std::erase_if(ids, [&](int32_t id) { return tokenizer.is_special(id); });
    words.push_back({{"score", std::exp(best[kBestWords + i])},
                     {"token", word},
                     {"token_str", tokenizer.decode(std::span(&word, 1))},
                     {"sequence", tokenizer.decode(ids)}});
  }
  return words;
}

}  // namespace

json filled_masks(const Invocation& request, const ServedModel& model) {
  const ModelFacts& facts = model.facts();
  const JsonValue parameters = request.parameters();
  require_parameters_among(parameters, {"top_k", "truncation", "max_length"});
  const int64_t most = integer_in(parameters, "top_k", 1).value_or(kBestWords);
  if (most > kBestWords) parameters.at("top_k").fail(cat("must be at most ", kBestWords));
  const CutOptions cut = cut_options(parameters, facts);
  const std::optional<int32_t> mask = facts.tokenizer->special(SpecialToken::mask);
  SL_ASSERT(mask, "a model for masked words has a mask token");
  std::vector<Example> examples;
  for (const JsonValue& input : request.each()) {
    model.require_time();
    Example example = example_of(read_text(input, input.text(), nullptr, facts, cut));
    for (const int32_t id : example.ids) example.labels.push_back(id == *mask ? id : kNoLabel);
    if (std::ranges::find(example.ids, *mask) == example.ids.end())
      input.fail(cat("has no ", facts.tokenizer->token(*mask)), "put one where a word is to be predicted");
    examples.push_back(std::move(example));
  }
  const std::vector<Logits> logits = model.logits(examples);
  json answers = json::array();
  for (size_t i = 0; i < examples.size(); ++i) {
    model.require_time();
    json masks = json::array();
    const bool is_only = logits[i].rows() == 1;
    for (size_t place = 0; place < examples[i].ids.size(); ++place)
      if (examples[i].labels[place] != kNoLabel)
        masks.push_back(
            words_for(examples[i], place, is_only, logits[i].row(std::ssize(masks)), most, *facts.tokenizer));
    answers.push_back(is_only ? masks.front() : masks);
  }
  return answers.size() == 1 ? answers.front() : answers;  // as the pipeline, also for a list of one
}

}  // namespace shardline
