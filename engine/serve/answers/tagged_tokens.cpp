#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "engine/serve/answers/answers.h"
#include "engine/serve/answers/request_text.h"

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

// A token of a text with what the model predicts for it.
struct Token {
  std::string word;  // as the vocabulary writes it; what the text has there if the vocabulary lacks it
  std::vector<double> scores;
  int64_t start = 0, end = 0;  // characters of the text
  int64_t index = 0;
  bool continues = false;  // the word of the token before it
};

// Tokens that have one tag: one of them, those of a word, or those of an entity.
struct Tagged {
  std::string tag, word;
  double score = 0;
  int64_t start = 0, end = 0, index = 0;
};

size_t best_of(const std::vector<double>& scores) {
  return std::ranges::max_element(scores) - scores.begin();
}

class Tagger {
 public:
  Tagger(const ModelFacts& facts, Strategy strategy, std::vector<std::string> ignored)
      : facts_(facts), strategy_(strategy), ignored_(std::move(ignored)) {}

  json entities(const std::string& text, const Encoding& encoding, const Logits& logits) const {
    const std::vector<Token> tokens = tokens_of(text, encoding, logits);
    std::vector<Tagged> tagged = strategy_ > Strategy::simple ? tagged_words(tokens) : tagged_tokens_of(tokens);
    if (strategy_ != Strategy::none) tagged = grouped(tagged);
    json entities = json::array();
    for (const Tagged& one : tagged) {
      if (std::ranges::find(ignored_, one.tag) != ignored_.end()) continue;
      json entity = {{"score", one.score}, {"word", one.word}, {"start", one.start}, {"end", one.end}};
      entity[strategy_ == Strategy::none ? "entity" : "entity_group"] = one.tag;
      if (strategy_ == Strategy::none) entity["index"] = one.index;
      entities.push_back(std::move(entity));
    }
    return entities;
  }

 private:
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
      const size_t best = best_of(token.scores);
      tagged.push_back(
          {facts_.head.names.at(best), token.word, token.scores[best], token.start, token.end, token.index});
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
    const size_t best = best_of(scores);
    return {facts_.head.names.at(best), facts_.tokenizer->joined(std::move(written)), scores[best],
            tokens.front().start, tokens.back().end};
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
  require_parameters_among(parameters, {"aggregation_strategy", "ignore_labels"});
  const Tagger tagger(facts, strategy_in(parameters), ignored_in(parameters));
  const CutOptions cut{.cuts = true, .most = facts.cut_tokens()};  // as the pipeline does
  const std::vector<JsonValue> inputs = request.each();
  std::vector<Encoding> encodings;
  std::vector<Example> examples;
  for (const JsonValue& input : inputs) {
    model.require_time();
    encodings.push_back(read_text(input, input.text(), nullptr, facts, cut));
    examples.push_back(example_of(encodings.back()));
  }
  const std::vector<Logits> logits = model.logits(std::move(examples));
  json answers = json::array();
  for (size_t i = 0; i < inputs.size(); ++i) {
    model.require_time();
    answers.push_back(tagger.entities(inputs[i].text(), encodings[i], logits[i]));
  }
  return request.is_list() ? answers : answers.front();
}

}  // namespace shardline
