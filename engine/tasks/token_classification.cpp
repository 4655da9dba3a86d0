#include "engine/tasks/token_classification.h"

#include <algorithm>

#include "core/error.h"
#include "engine/metrics/tagging_metrics.h"
#include "engine/tasks/bounded_encoding.h"
#include "engine/tasks/labels.h"

namespace shardline {
namespace {

using nlohmann::json;

// A word's first token has the word's tag; its other tokens, and special ones, predict nothing.
class TokenClassification final : public LabelledTask {
 public:
  TokenClassification(const Config& config, const HeadChoice& head, TokenizerPtr tokenizer)
      : words_(config.data.tokens_column),
        tags_(config.data.label_column),
        length_(config.data.sequence_length),
        head_(head),
        labels_(config, head),
        tokenizer_(std::move(tokenizer)) {}

  ExampleShape shape() const override { return {.types = true, .labels = true}; }

  RowExamples encode(const DataRow& row, bool labelled) const override {
    const std::vector<std::string> words = words_of(row);
    const auto tags = labelled ? tags_of(row, words.size()) : std::vector<int32_t>(words.size(), 0);
    const TextOrWords text = std::span<const std::string>(words);
    const auto [encoding, is_shortened] = encode_at_most(*tokenizer_, text, nullptr, length_);
    if (encoding.size() == 0) return {.shortened = !words.empty()};
    const auto is_word = [](int32_t word) { return word != Encoding::kNone; };
    if (labelled && std::ranges::none_of(encoding.words, is_word)) return {.shortened = true};  // nothing to learn
    Example example{.ids = encoding.ids};
    example.types.assign(encoding.types.begin(), encoding.types.end());
    int32_t last = Encoding::kNone;
    for (const int32_t word : encoding.words) {
      example.labels.push_back(word == Encoding::kNone || word == last ? kNoLabel : tags[word]);
      last = word;
    }
    return {.examples = {std::move(example)}, .shortened = is_shortened};
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
    const auto [scores, tags] = predicted.logits.softmax(1).max(1);
    const auto* score = scores.const_data_ptr<double>();
    const auto* tag = tags.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < predicted.data.size(); ++i) {
      json names = json::array(), certainties = json::array();
      for (const int32_t label : predicted.data.set->labels(predicted.data[i])) {
        if (label != kNoLabel) {
          names.push_back(head_.names[*tag]);
          certainties.push_back(*score);
        }
        ++tag;
        ++score;
      }
      use({{"tags", names}, {"scores", certainties}});
    }
  }

 private:
  const json& list_in(const DataRow& row, const std::string& column, const char* key) const {
    const json& value = column_of(row, column, key);
    if (!value.is_array()) throw DataError(cat(row.where, ": '", column, "' must be a list, one entry for each word"));
    return value;
  }

  std::vector<std::string> words_of(const DataRow& row) const {
    std::vector<std::string> words;
    for (const json& word : list_in(row, words_, "data.tokens_column")) {
      if (!word.is_string()) throw DataError(cat(row.where, ": '", words_, "' must be a list of texts"));
      words.push_back(word.get<std::string>());
    }
    return words;
  }

  std::vector<int32_t> tags_of(const DataRow& row, size_t words) const {
    const json& list = list_in(row, tags_, "data.label_column");
    if (list.size() != words)
      throw DataError(cat(row.where, ": '", tags_, "' has ", list.size(), " tags for ", words, " words"));
    std::vector<int32_t> tags;
    for (const json& tag : list) tags.push_back(labels_.id_of(tag, row, tags_));
    return tags;
  }

  std::string words_, tags_;
  int64_t length_;  // most tokens of an example
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
