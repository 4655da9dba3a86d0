#include "engine/tasks/token_classification.h"

#include <algorithm>

#include "core/error.h"
#include "engine/metrics/tagging_metrics.h"
#include "engine/tasks/bounded_encoding.h"
#include "engine/tasks/labels.h"
#include "engine/tasks/predicted_scores.h"
#include "engine/tasks/tokenised_inputs.h"
#include "engine/tasks/tokenised_labels.h"

namespace shardline {
namespace {

using nlohmann::json;

// A word's first token has the word's tag; its other tokens, and special ones, predict nothing. Words, including the
// first one, have the tokens that they have inside a text, as with add_prefix_space of run_ner.py. In a tokenised row,
// each token is a word.
class TokenClassification final : public LabelledTask {
 public:
  TokenClassification(const Config& config, const HeadChoice& head, TokenizerPtr tokenizer)
      : words_(config.data.tokens_column),
        tags_(config.data.label_column),
        length_(config.data.sequence_length),
        inputs_(config),
        head_(head),
        labels_(config, head),
        tokenizer_(std::move(tokenizer)) {}

  ExampleShape shape() const override { return {.types = true, .labels = true}; }

  RowExamples encode(const DataRow& row, bool labelled) const override {
    const Sentence sentence = read(row);
    const auto tags = labelled ? tags_of(row, sentence.length) : std::vector<int32_t>(sentence.length, 0);
    // Only rows with an example have predictions, so a row without tokens gets an example whose output is not read.
    if (sentence.ids.empty() && !labelled)
      return {.examples = {{.ids = {0}, .labels = {kNoLabel}}}, .shortened = sentence.is_shortened};
    if (sentence.ids.empty()) return {.shortened = sentence.length > 0};
    Example example{.ids = sentence.ids, .types = sentence.types};
    for (const int64_t word : sentence.first_of_word) example.labels.push_back(word == kNone ? kNoLabel : tags[word]);
    const auto is_tag = [](int32_t label) { return label != kNoLabel; };
    if (labelled && std::ranges::none_of(example.labels, is_tag)) return {.shortened = true};  // nothing to learn
    return {.examples = {std::move(example)}, .shortened = sentence.is_shortened};
  }

  std::string settings() const override {
    return cat("token-classification ", words_, '\n', tags_, '\n', length_, ' ', tokenizer_->digest(), ' ',
               json(head_.names).dump());
  }

  MetricValues metrics(const Predicted& predicted) const override {
    const at::Tensor best = predicted.logits.argmax(1);
    const auto* tag = best.const_data_ptr<int64_t>();
    std::vector<Tags> given, expected;
    for (int64_t i = 0; i < predicted.data.size(); ++i) {
      given.emplace_back();
      expected.emplace_back();
      for (const int32_t label : predicted.data.set->labels(predicted.data[i])) {
        const int64_t chosen = *tag++;
        if (label == kNoLabel) continue;
        expected.back().push_back(head_.names[label]);
        given.back().push_back(head_.names[chosen]);
      }
    }
    const TaggingMetrics metrics = tagging_metrics(given, expected);
    const PrecisionRecall& scores = metrics.overall.scores;
    return {
        {"precision", scores.precision}, {"recall", scores.recall}, {"f1", scores.f1}, {"accuracy", metrics.accuracy}};
  }

  void predictions(const Predicted& predicted, const UsePrediction& use) const override {
    const at::Tensor rows = predicted.logits.contiguous();
    const auto* logits = rows.const_data_ptr<double>();  // the logits of the row's first token
    const int64_t width = rows.size(1);
    for_each_predicted_row(predicted, [&](const DataRow& row, int64_t place) {
      const Sentence sentence = read(row);
      json names(json::value_t::array), certainties = names;
      const auto add_until = [&](int64_t word) {  // words without a token have no tag
        while (std::cmp_less(names.size(), word)) {
          names.push_back(nullptr);
          certainties.push_back(nullptr);
        }
      };
      for (size_t token = 0; token < sentence.ids.size(); ++token) {
        const int64_t word = sentence.first_of_word[token];
        if (word == kNone) continue;
        add_until(word);
        const auto [tag, score] = best_label(softmax_of({logits + token * width, size_t(width)}), head_.names);
        names.push_back(tag);
        certainties.push_back(score);
      }
      if (!sentence.lacks_end) add_until(sentence.length);
      logits += width * predicted.data.set->tokens(predicted.data[place]);
      use({{"tags", names}, {"scores", certainties}});
    });
  }

 private:
  static constexpr int64_t kNone = -1;

  // A row as the model reads it.
  struct Sentence {
    std::vector<int32_t> ids;
    std::vector<uint8_t> types;
    std::vector<int64_t> first_of_word;  // the word that each token begins, or kNone
    int64_t length = 0;                  // words of the row, including those without tokens
    bool is_shortened = false;           // words were cut off
    bool lacks_end = false;              // at its end
  };

  Sentence read(const DataRow& row) const {
    if (auto tokens = inputs_.read(row, length_))
      return {.ids = std::move(tokens->ids),
              .types = std::move(tokens->types),
              .first_of_word = std::move(tokens->places),
              .length = tokens->length};
    const std::vector<std::string> words = words_of(row);
    const TextOrWords text = std::span<const std::string>(words);
    const auto [encoding, is_shortened, lacks_end] =
        encode_at_most(*tokenizer_, text, nullptr, length_, /*spaces_words=*/true);
    Sentence sentence{
        .ids = encoding.ids, .length = std::ssize(words), .is_shortened = is_shortened, .lacks_end = lacks_end};
    sentence.types.assign(encoding.types.begin(), encoding.types.end());
    int32_t last = Encoding::kNone;
    for (const int32_t word : encoding.words) {
      sentence.first_of_word.push_back(word == Encoding::kNone || word == last ? kNone : word);
      last = word;
    }
    return sentence;
  }

  const json& list_in(const DataRow& row, const std::string& column, const char* key) const {
    const json& value = column_of(row, column, key);
    if (!value.is_array()) throw DataError(cat(row.where, ": '", column, "' must be a list, one entry for each word"));
    return value;
  }

  std::vector<std::string> words_of(const DataRow& row) const {
    std::vector<std::string> words;
    for (const json& word : list_in(row, words_, "data.tokens_column")) {
      if (!word.is_string()) throw DataError(cat(row.where, ": '", words_, "' must be a list of strings"));
      words.push_back(word.get<std::string>());
    }
    return words;
  }

  std::vector<int32_t> tags_of(const DataRow& row, int64_t words) const {
    const std::string column = label_column_of(row, tags_);
    const json& list = list_in(row, column, "data.label_column");
    if (std::cmp_not_equal(list.size(), words))
      throw DataError(cat(row.where, ": '", column, "' has ", list.size(), " tags for ", words,
                          is_tokenised(row) ? " tokens" : " words"));
    std::vector<int32_t> tags;
    for (const json& tag : list)
      tags.push_back(is_tokenised(row) && tag == kNoLabel ? kNoLabel : labels_.id_of(tag, row, column));
    return tags;
  }

  std::string words_, tags_;
  int64_t length_;  // maximum tokens of an example
  TokenisedInputs inputs_;
  HeadChoice head_;
  LabelIds labels_;
  TokenizerPtr tokenizer_;
};

}  // namespace

std::unique_ptr<LabelledTask> token_classification(const Config& config, const HeadChoice& head,
                                                   const TokenizerPtr& tokenizer) {
  return std::make_unique<TokenClassification>(config, head, tokenizer);
}

}  // namespace shardline
