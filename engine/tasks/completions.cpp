#include "engine/tasks/completions.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "engine/tasks/tokenised_labels.h"

namespace shardline {
namespace {

class Completions final : public LabelledTask {
 public:
  Completions(const Config& config, TokenizerPtr tokenizer)
      : length_(config.data.sequence_length),
        may_cut_(config.data.used_packing() == Packing::bfd),
        tokenizer_(std::move(tokenizer)) {}

  ExampleShape shape() const override { return {.labels = true}; }

  // A row, or a piece of one, without a predicted token yields no example: a step of such rows would have nothing to
  // learn.
  RowExamples encode(const DataRow& row, bool) const override {
    RowExamples row_examples;
    const auto given = tokenised_documents(row);
    const Labelled all = given ? labelled_tokens(row, *given) : labelled_text(row);
    int64_t begin = 0;
    if (given)
      for (const int64_t start : given->starts) add_document(all, std::exchange(begin, start), start, row_examples);
    add_document(all, begin, std::ssize(all.ids), row_examples);
    return row_examples;
  }

  std::string settings() const override {
    return cat("completions with masks ", length_, may_cut_ ? " in pieces " : " ", tokenizer_->digest());
  }

  bool uses_predictions() const override { return false; }
  MetricValues metrics(const Predicted& predicted) const override {
    return {{"perplexity", std::exp(predicted.mean_loss)}};
  }
  void predictions(const Predicted&, const UsePrediction&) const override {
    SL_ASSERT(false, "causal language models generate text");
  }

 private:
  struct Labelled {
    std::vector<int32_t> ids, labels;  // kNoLabel: the token is not predicted
  };

  // Adds the examples of the tokens from `first` to `last`.
  void add_document(const Labelled& all, int64_t first, int64_t last, RowExamples& row_examples) const {
    const auto& [ids, labels] = all;
    for (int64_t begin = first; begin < last || begin == first; begin += length_) {
      const int64_t end = std::min(last, begin + length_);
      Example piece{.ids = {ids.begin() + begin, ids.begin() + end}, .labels = {}};
      for (int64_t next = begin + 1; next < end; ++next) piece.labels.push_back(labels[next]);
      piece.labels.push_back(kNoLabel);
      if (std::ranges::any_of(piece.labels, [](int32_t label) { return label != kNoLabel; }))
        row_examples.examples.push_back(std::move(piece));
      else
        row_examples.shortened = true;
      if (!may_cut_) {
        row_examples.shortened |= end < last;
        break;
      }
    }
  }

  // A token that begins in the prompt and ends in the completion belongs to the completion. The end of text comes after
  // the completion.
  Labelled labelled_text(const DataRow& row) const {
    const std::string &prompt = text_of(row, "prompt", kKey), &completion = text_of(row, "completion", kKey);
    const std::string text = prompt + completion;
    const Encoding encoding = tokenizer_->encode_example(std::string_view(text), nullptr, {}).front();
    Labelled made{.ids = encoding.ids};
    for (size_t token = 0; token < encoding.size(); ++token)
      made.labels.push_back(encoding.offsets[token].end > prompt.size() ? encoding.ids[token] : kNoLabel);
    if (const auto eos =
            tokenizer_->eos()) {  // the tokenizer may have added it, as a token without a place in the text
      if (made.ids.empty() || made.ids.back() != *eos) {
        made.ids.push_back(*eos);
        made.labels.emplace_back();
      }
      made.labels.back() = *eos;
    }
    return made;
  }

  // Labels are at the places of the tokens that they name, because transformers shifts them itself. Without labels, all
  // tokens are predicted except those that TRL's masks leave out.
  static Labelled labelled_tokens(const DataRow& row, const TokenisedRow& tokens) {
    refuse_types(row, tokens);
    Labelled made{tokens.ids, has_column(row, "labels") ? word_labels(row, tokens) : tokens.ids};
    const auto predicted = predicted_tokens(row, tokens);
    for (size_t token = 0; token < predicted.size(); ++token)
      if (!predicted[token]) made.labels[token] = kNoLabel;
    return made;
  }

  static constexpr const char* kKey = "data.completion_only_loss to false, or rename the columns";

  int64_t length_;  // maximum tokens of an example
  bool may_cut_;    // longer rows become several examples, otherwise they are cut off
  TokenizerPtr tokenizer_;
};

}  // namespace

std::unique_ptr<LabelledTask> completions(const Config& config, const TokenizerPtr& tokenizer) {
  return std::make_unique<Completions>(config, tokenizer);
}

}  // namespace shardline
