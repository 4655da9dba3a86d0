#include <algorithm>
#include <set>

#include "core/error.h"
#include "engine/serve/answers/answers.h"
#include "engine/serve/answers/request_text.h"
#include "engine/tasks/predicted_scores.h"

namespace shardline {
namespace {

using nlohmann::json;

constexpr int64_t kMostWords = 1000;           // per mask
constexpr int64_t kMostShownTokens = 1 << 25;  // in all sequences of an answer

// The id of a word as the vocabulary writes it, or else of the first token of the word.
std::optional<int32_t> target_id(const std::string& word, const Tokenizer& tokenizer) {
  if (const auto id = tokenizer.id(word)) return id;
  const ExampleOptions first{.add_special_tokens = false, .truncation = Truncation::longest_first, .max_length = 1};
  const std::vector<int32_t> ids = tokenizer.encode_example(std::string_view(word), nullptr, first).front().ids;
  return ids.empty() ? std::nullopt : std::optional(ids.front());
}

std::vector<int32_t> targets_in(const JsonValue& parameters, const ModelFacts& facts) {
  if (!parameters.has("targets")) return {};
  const JsonValue given = parameters.at("targets");
  const std::vector<JsonValue> words = given.json().is_array() ? given.items() : std::vector{given};
  if (std::cmp_greater(words.size(), kMostWords)) given.fail(cat("must be at most ", kMostWords, " words"));
  std::set<int32_t> ids;
  for (const JsonValue& word : words) {
    require_bounded(word, word.text());
    const auto id = target_id(word.text(), *facts.tokenizer);
    if (id && *id >= facts.vocab_size)
      word.fail(cat("has the id ", *id, ", but the model's vocab_size is ", facts.vocab_size));
    if (id) ids.insert(*id);
  }
  if (ids.empty()) given.fail("contains no word that the tokenizer can encode", "name at least one");
  return {ids.begin(), ids.end()};
}

WantedWords wanted_words(const JsonValue& parameters, const ModelFacts& facts) {
  WantedWords wanted{.only = targets_in(parameters, facts)};
  wanted.most = integer_in(parameters, "top_k", 1).value_or(wanted.most);
  if (wanted.most > kMostWords) parameters.at("top_k").fail(cat("must be at most ", kMostWords));
  if (!wanted.only.empty()) wanted.most = std::min(wanted.most, std::ssize(wanted.only));
  return wanted;
}

// The words for one mask, the most probable first.
json words_for(const Example& example, size_t place, bool is_only, std::span<const double> found,
               const Tokenizer& tokenizer) {
  const auto pad = tokenizer.special(SpecialToken::pad);
  json words = json::array();
  for (const WordScore& word : word_scores(found, tokenizer)) {
    std::vector<int32_t> ids = example.ids;
    ids[place] = word.id;
    // Special tokens are left out, unless other masks are among them.
    std::erase_if(ids, [&](int32_t id) { return id == pad || (is_only && tokenizer.is_special(id)); });
    words.push_back(
        {{"score", word.score}, {"token", word.id}, {"token_str", word.text}, {"sequence", tokenizer.decode(ids)}});
  }
  return words;
}

}  // namespace

json filled_masks(const Invocation& request, const ServedModel& model) {
  const ModelFacts& facts = model.facts();
  const JsonValue parameters = request.parameters();
  require_parameters_among(parameters, {"top_k", "targets", "truncation", "max_length"});
  const WantedWords wanted = wanted_words(parameters, facts);
  const CutOptions cut = cut_options(parameters, facts);
  const std::optional<int32_t> mask = facts.tokenizer->special(SpecialToken::mask);
  SL_ASSERT(mask, "a model for masked words has a mask token");
  std::vector<Example> examples;
  int64_t shown = 0;
  for (const JsonValue& input : request.each()) {
    model.require_time();
    Example example = example_of(read_text(input, input.text(), nullptr, facts, cut));
    for (const int32_t id : example.ids) example.labels.push_back(id == *mask ? id : kNoLabel);
    const int64_t masks = std::ranges::count(example.ids, *mask);
    if (masks == 0)
      input.fail(cat("has no ", facts.tokenizer->token(*mask)), "put one where a word should be predicted");
    shown += masks * wanted.most * std::ssize(example.ids);
    if (shown > kMostShownTokens)
      input.fail(cat("makes the answer too large: the texts with each word for each mask would have more than ",
                     kMostShownTokens, " tokens, including those of the inputs before it"),
                 "send fewer masks in a request, or a smaller parameters.top_k");
    example.words = wanted;
    examples.push_back(std::move(example));
  }
  const std::vector<Logits> logits = model.logits(examples);
  json answers = json::array();
  for (size_t i = 0; i < examples.size(); ++i) {
    json masks = json::array();
    const bool is_only = logits[i].rows() == 1;
    for (size_t place = 0; place < examples[i].ids.size(); ++place) {
      if (examples[i].labels[place] == kNoLabel) continue;
      model.require_time();
      masks.push_back(words_for(examples[i], place, is_only, logits[i].row(std::ssize(masks)), *facts.tokenizer));
    }
    answers.push_back(is_only ? masks.front() : masks);
  }
  return request.answers_one(answers) ? answers.front() : answers;
}

}  // namespace shardline
