#include <algorithm>
#include <limits>
#include <optional>
#include <span>

#include "core/error.h"
#include "engine/data/text/character_places.h"
#include "engine/serve/answers/answers.h"
#include "engine/serve/answers/request_text.h"
#include "engine/tasks/predicted_scores.h"

namespace shardline {
namespace {

using nlohmann::json;

enum class Strategy { none, simple, first, average, max };

Strategy strategy_in(const JsonValue& parameters) {
  if (!parameters.has("aggregation_strategy")) return Strategy::none;
  const JsonValue given = parameters.at("aggregation_strategy");
  const std::vector<std::string> names = {"none", "simple", "first", "average", "max"};
  const auto found = std::ranges::find(names, given.text());
  if (found == names.end()) given.fail("must be \"none\", \"simple\", \"first\", \"average\" or \"max\"");
  return Strategy(found - names.begin());
}

std::vector<std::string> ignored_in(const JsonValue& parameters) {
  if (!parameters.has("ignore_labels")) return {"O"};
  std::vector<std::string> labels;
  for (const JsonValue& label : parameters.at("ignore_labels").items()) labels.push_back(label.text());
  return labels;
}

// The number of tokens that neighbouring windows of a text share; unset: only the first window of a long text is
// tagged.
std::optional<int64_t> stride_in(const JsonValue& parameters, const ModelFacts& facts, Strategy strategy) {
  const auto stride = integer_in(parameters, "stride", 0);
  if (!stride) return {};
  const JsonValue given = parameters.at("stride");
  if (strategy == Strategy::none)
    given.fail("is available only if tokens are aggregated into entities",
               "set aggregation_strategy, for example to \"simple\"");
  const int64_t around = std::ssize(facts.tokenizer->encode_example(std::string_view(), nullptr, {}).front().ids);
  if (*stride >= facts.cut_tokens() - around)
    given.fail(cat("must be less than ", facts.cut_tokens() - around, ", the tokens of a text in a window"));
  return stride;
}

// The whole text, or its beginning if there is no stride, as the pipeline reads it. earlier: windows of earlier texts.
std::vector<Encoding> read_windows(const JsonValue& input, const ModelFacts& facts,
                                   const std::optional<int64_t>& stride, int64_t earlier) {
  const std::string text = input.text();
  const CutOptions whole{.cuts = !stride, .most = stride ? std::numeric_limits<int64_t>::max() : facts.cut_tokens()};
  Encoding encoding = read_text(input, text, nullptr, facts, whole);
  if (std::cmp_less_equal(encoding.size(), facts.cut_tokens())) return {std::move(encoding)};
  const int64_t of_text = std::ranges::count(encoding.sequences, 0), others = std::ssize(encoding.ids) - of_text;
  require_few_windows(input, earlier + of_text / (facts.cut_tokens() - others - *stride),
                      "send shorter texts, fewer in a request, or a smaller parameters.stride");
  return facts.tokenizer->encode_example(
      std::string_view(text), nullptr,
      {.truncation = Truncation::longest_first, .max_length = facts.cut_tokens(), .windows = true, .stride = *stride});
}

// A token of a text with what the model predicts for it.
struct Token {
  std::string word;  // as the vocabulary writes it, or as in the text if the vocabulary lacks it
  std::vector<double> scores;
  int64_t start = 0, end = 0;  // characters of the text
  int64_t index = 0;
  bool continues = false;  // it belongs to the word of the token before it
};

// Tokens that have one tag: one of them, those of a word, or those of an entity.
struct Tagged {
  std::string tag, word;
  double score = 0;
  int64_t start = 0, end = 0, index = 0;
};

class Tagger {
 public:
  Tagger(const ModelFacts& facts, Strategy strategy, std::vector<std::string> ignored)
      : facts_(facts), strategy_(strategy), ignored_(std::move(ignored)) {}

  // logits: one element per window.
  json entities(const std::string& text, const std::vector<Encoding>& windows, std::span<const Logits> logits) const {
    std::vector<Tagged> found;
    for (size_t i = 0; i < windows.size(); ++i)
      for (Tagged& one : tagged_of(text, windows[i], logits[i]))
        if (std::ranges::find(ignored_, one.tag) == ignored_.end()) found.push_back(std::move(one));
    if (windows.size() > 1) found = apart(std::move(found));
    json entities = json::array();
    for (const Tagged& one : found) {
      json entity = {{"score", one.score}, {"word", one.word}, {"start", one.start}, {"end", one.end}};
      entity[strategy_ == Strategy::none ? "entity" : "entity_group"] = one.tag;
      if (strategy_ == Strategy::none) entity["index"] = one.index;
      entities.push_back(std::move(entity));
    }
    return entities;
  }

 private:
  std::vector<Tagged> tagged_of(const std::string& text, const Encoding& window, const Logits& logits) const {
    const std::vector<Token> tokens = tokens_of(text, window, logits);
    const std::vector<Tagged> tagged = strategy_ > Strategy::simple ? tagged_words(tokens) : tagged_tokens_of(tokens);
    return strategy_ == Strategy::none ? tagged : grouped(tagged);
  }

  // If spans overlap, keeps the longer one; of two that are equally long, the one with the higher score.
  static std::vector<Tagged> apart(std::vector<Tagged> found) {
    std::ranges::stable_sort(found, {}, &Tagged::start);
    std::vector<Tagged> kept;
    for (Tagged& one : found) {
      if (kept.empty() || one.start >= kept.back().end) {
        kept.push_back(std::move(one));
        continue;
      }
      const auto rank = [](const Tagged& of) { return std::pair(of.end - of.start, of.score); };
      if (rank(one) > rank(kept.back())) kept.back() = std::move(one);
    }
    return kept;
  }

  std::vector<Token> tokens_of(const std::string& text, const Encoding& encoding, const Logits& logits) const {
    const Tokenizer& tokenizer = *facts_.tokenizer;
    const auto unknown = tokenizer.special(SpecialToken::unk);
    const CharacterPlaces places(text);
    std::vector<Token> tokens;
    for (int64_t i = 0; std::cmp_less(i, encoding.size()); ++i) {
      if (encoding.is_special(i)) continue;
      const auto [begin, end] = encoding.offsets[i];
      Token token{.word = tokenizer.token(encoding.ids[i]),
                  .scores = softmax_of(logits.row(i)),
                  .start = places.of_byte(begin),
                  .end = places.of_byte(end),
                  .index = i};
      if (tokenizer.marks_continuations()) {
        token.continues = CharacterPlaces(token.word).of_byte(token.word.size()) != token.end - token.start;
      } else {  // as in transformers, which knows nothing else about such tokens
        const std::string_view around = std::string_view(text).substr(begin > 0 ? begin - 1 : 0, begin > 0 ? 2 : 0);
        token.continues = begin > 0 && around.find(' ') == std::string_view::npos;
      }
      if (encoding.ids[i] == unknown) {
        token.word = text.substr(begin, end - begin);
        token.continues = false;
      }
      tokens.push_back(std::move(token));
    }
    return tokens;
  }

  std::vector<Tagged> tagged_tokens_of(const std::vector<Token>& tokens) const {
    std::vector<Tagged> tagged;
    for (const Token& token : tokens) {
      const auto [tag, score] = best_label(token.scores, facts_.head.names);
      tagged.push_back({tag, token.word, score, token.start, token.end, token.index});
    }
    return tagged;
  }

  std::vector<Tagged> tagged_words(const std::vector<Token>& tokens) const {
    std::vector<Tagged> words;
    for (size_t begin = 0, end = 0; begin < tokens.size(); begin = end) {
      for (end = begin + 1; end < tokens.size() && tokens[end].continues;) ++end;
      words.push_back(tagged_word(std::span(tokens).subspan(begin, end - begin)));
    }
    return words;
  }

  Tagged tagged_word(std::span<const Token> tokens) const {
    std::vector<std::string> written;
    std::vector<double> scores = tokens.front().scores;
    for (const Token& token : tokens) written.push_back(token.word);
    if (strategy_ == Strategy::max) {
      const auto highest = [](const Token& token) { return *std::ranges::max_element(token.scores); };
      scores = std::ranges::max_element(tokens, {}, highest)->scores;
    } else if (strategy_ == Strategy::average) {
      for (const Token& token : tokens.subspan(1))
        for (size_t i = 0; i < scores.size(); ++i) scores[i] += token.scores[i];
      for (double& score : scores) score /= tokens.size();
    }
    const auto [tag, score] = best_label(scores, facts_.head.names);
    return {tag, facts_.tokenizer->joined(std::move(written)), score, tokens.front().start, tokens.back().end};
  }

  // Neighbours of one kind become an entity; "B-" begins another one.
  std::vector<Tagged> grouped(const std::vector<Tagged>& tagged) const {
    std::vector<Tagged> groups;
    for (size_t begin = 0, end = 0; begin < tagged.size(); begin = end) {
      for (end = begin + 1; end < tagged.size() && goes_on(tagged[end - 1].tag, tagged[end].tag);) ++end;
      const auto part = std::span(tagged).subspan(begin, end - begin);
      std::vector<std::string> words;
      double sum = 0;
      for (const Tagged& one : part) {
        words.push_back(one.word);
        sum += one.score;
      }
      const std::string& tag = part.front().tag;
      groups.push_back({tag.substr(tag.find('-') + 1), facts_.tokenizer->joined(std::move(words)), sum / part.size(),
                        part.front().start, part.back().end});
    }
    return groups;
  }

  static bool goes_on(const std::string& before, const std::string& tag) {
    const auto kind = [](const std::string& of) {
      return of.starts_with("B-") || of.starts_with("I-") ? of.substr(2) : of;
    };
    return !tag.starts_with("B-") && kind(before) == kind(tag);
  }

  const ModelFacts& facts_;
  Strategy strategy_;
  std::vector<std::string> ignored_;
};

}  // namespace

json tagged_tokens(const Invocation& request, const ServedModel& model) {
  const ModelFacts& facts = model.facts();
  const JsonValue parameters = request.parameters();
  require_parameters_among(parameters, {"aggregation_strategy", "ignore_labels", "stride"});
  const Strategy strategy = strategy_in(parameters);
  const auto stride = stride_in(parameters, facts, strategy);
  const Tagger tagger(facts, strategy, ignored_in(parameters));
  const std::vector<JsonValue> inputs = request.each();
  std::vector<std::vector<Encoding>> windows;  // by text
  std::vector<Example> examples;
  for (const JsonValue& input : inputs) {
    model.require_time();
    windows.push_back(read_windows(input, facts, stride, std::ssize(examples)));
    for (const Encoding& window : windows.back()) examples.push_back(example_of(window));
  }
  const std::vector<Logits> logits = model.logits(std::move(examples));
  std::span<const Logits> rest = logits;
  json answers = json::array();
  for (size_t i = 0; i < inputs.size(); ++i) {
    model.require_time();
    answers.push_back(tagger.entities(inputs[i].text(), windows[i], rest.first(windows[i].size())));
    rest = rest.subspan(windows[i].size());
  }
  return request.is_list() ? answers : answers.front();
}

}  // namespace shardline
