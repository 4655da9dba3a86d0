#include "engine/tasks/completions.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace shardline {
namespace {

class Completions final : public LabelledTask {
 public:
  Completions(const Config& config, TokenizerPtr tokenizer)
      : length_(config.data.sequence_length), tokenizer_(std::move(tokenizer)) {}

  ExampleShape shape() const override { return {.labels = true}; }

  // A token that begins in the prompt and ends in the completion belongs to the completion, which the end of text
  // follows. A row that has no predicted token left has no example: a step of such rows would have nothing to learn.
  RowExamples encode(const DataRow& row, bool) const override {
    const std::string &prompt = text_of(row, "prompt", kKey), &completion = text_of(row, "completion", kKey);
    const std::string text = prompt + completion;
    const Encoding encoding = tokenizer_->encode_example(std::string_view(text), nullptr, {}).front();
    Example example{.ids = encoding.ids};
    std::vector<bool> is_predicted;
    for (size_t token = 0; token < encoding.size(); ++token)
      is_predicted.push_back(encoding.offsets[token].end > prompt.size());
    if (const auto eos = tokenizer_->eos()) {  // the tokenizer may have added it, as a token of no place in the text
      if (example.ids.empty() || example.ids.back() != *eos) {
        example.ids.push_back(*eos);
        is_predicted.emplace_back();
      }
      is_predicted.back() = true;
    }
    const bool is_long = std::ssize(example.ids) > length_;
    if (is_long) example.ids.resize(length_);
    for (size_t token = 1; token < example.ids.size(); ++token)
      example.labels.push_back(is_predicted[token] ? example.ids[token] : kNoLabel);
    example.labels.push_back(kNoLabel);
    if (std::ranges::all_of(example.labels, [](int32_t label) { return label == kNoLabel; }))
      return {.shortened = true};
    return {.examples = {std::move(example)}, .shortened = is_long};
  }

  std::string settings() const override { return cat("completions ", length_, ' ', tokenizer_->digest()); }

  bool uses_predictions() const override { return false; }
  MetricValues metrics(const Predicted& predicted) const override {
    return {{"perplexity", std::exp(predicted.mean_loss)}};
  }
  void predictions(const Predicted&, const UsePrediction&) const override {
    SL_ASSERT(false, "causal language models generate text");
  }

 private:
  static constexpr const char* kKey = "data.completion_only_loss to false, or rename the columns";

  int64_t length_;  // most tokens of an example
  TokenizerPtr tokenizer_;
};

}  // namespace

std::unique_ptr<LabelledTask> completions(const Config& config, const TokenizerPtr& tokenizer) {
  return std::make_unique<Completions>(config, tokenizer);
}

}  // namespace shardline
