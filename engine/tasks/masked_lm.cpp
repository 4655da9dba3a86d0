#include "engine/tasks/masked_lm.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "engine/data/source/jsonl.h"
#include "engine/tasks/bounded_encoding.h"
#include "engine/tasks/predicted_scores.h"
#include "engine/tasks/tokenised_inputs.h"
#include "engine/tasks/tokenised_labels.h"
#include "tensor_parallel/ops/cross_entropy.h"

namespace shardline {
namespace {

using nlohmann::json;

int32_t mask_token_of(const Tokenizer& tokenizer) {
  if (const auto mask = tokenizer.special(SpecialToken::mask)) return *mask;
  throw ConfigError(
      "/data/tokenizer: has no mask token, which task \"masked-lm\" needs; name the tokenizer of an encoder, or add "
      "\"mask_token\" to its tokenizer_config.json");
}

// Whether the token continues the word of the token before it: as in transformers, if the two touch in the text.
bool continues_word(const Encoding& encoding, size_t token) {
  if (token == 0 || encoding.is_special(token) || encoding.is_special(token - 1)) return false;
  return encoding.offsets[token].begin == encoding.offsets[token - 1].end;
}

class MaskedLm final : public LabelledTask {
 public:
  MaskedLm(const Config& config, TokenizerPtr tokenizer)
      : data_(config.data), inputs_(config), tokenizer_(std::move(tokenizer)), mask_(mask_token_of(*tokenizer_)) {}

  ExampleShape shape() const override { return {.types = true, .labels = true, .words = data_.whole_word_mask}; }
  int64_t chunk() const override { return data_.line_by_line ? 0 : data_.sequence_length; }
  std::optional<MaskingRule> masking() const override {
    return MaskingRule{.probability = data_.mlm_probability,
                       .whole_words = data_.whole_word_mask,
                       .mask_token = mask_,
                       .words = tokenizer_->vocab_size()};
  }

  RowExamples encode(const DataRow& row, bool labelled) const override {
    const bool is_cut = chunk() == 0 || !labelled;
    const int64_t most = is_cut ? data_.sequence_length : std::numeric_limits<int64_t>::max();
    const auto tokens = inputs_.read(row, most);
    if (!tokens && is_cut && is_blank_line(text_in(row))) return {};
    auto [example, is_shortened] = tokens ? Read{example_of_tokens(row, *tokens)} : example_of_text(row, most);
    if (example.ids.empty()) return {.shortened = is_shortened};
    if (labelled) {
      const auto can_be_masked = [](int32_t label) { return label != kNoLabel; };
      if (is_cut && std::ranges::none_of(example.labels, can_be_masked)) return {.shortened = true};
    } else {
      for (size_t token = 0; token < example.ids.size(); ++token)
        example.labels[token] = example.ids[token] == mask_ ? mask_ : kNoLabel;
      if (std::ranges::find(example.ids, mask_) == example.ids.end())
        throw DataError(cat(row.where, ": '", tokens ? "input_ids" : data_.text_column, "' has no ",
                            tokenizer_->decode(std::span(&mask_, 1)),
                            is_shortened ? cat(" in the ", data_.sequence_length, " tokens that remain of it") : "",
                            "; put one where a word should be predicted"));
    }
    return {.examples = {std::move(example)}, .shortened = is_shortened};
  }

  std::string settings() const override {
    return cat("masked-lm ", data_.text_column, '\n', data_.sequence_length, ' ', data_.line_by_line, ' ',
               data_.whole_word_mask, ' ', tokenizer_->digest());
  }

  MetricValues metrics(const Predicted& predicted) const override {
    const Examples& data = predicted.data;
    const TokenMasking masking(*this->masking(), kEvaluationMaskSeed);
    const at::Tensor rows = predicted.logits.contiguous();
    const auto* best = rows.const_data_ptr<double>();
    int64_t right = 0, masked = 0;
    for (int64_t i = 0; i < data.size(); ++i)
      for (const auto& token : masking.tokens_of(*data.set, data[i], /*epoch=*/0)) {
        right += best[2 * kBestWords * masked++] == data.set->ids(data[i])[token.place];
      }
    SL_ASSERT(masked == rows.size(0), "predictions of ", rows.size(0), " tokens, not ", masked);
    return {{"perplexity", std::exp(predicted.mean_loss)}, {"accuracy", 1.0 * right / masked}};
  }

  void predictions(const Predicted& predicted, const UsePrediction& use) const override {
    const at::Tensor rows = predicted.logits.contiguous();
    const auto* best = rows.const_data_ptr<double>();
    const Examples& data = predicted.data;
    for (int64_t i = 0; i < data.size(); ++i) {
      const auto labels = data.set->labels(data[i]), ids = data.set->ids(data[i]);
      json masks = json::array();
      std::vector<int32_t> filled;
      for (size_t token = 0; token < ids.size(); ++token) {
        filled.push_back(ids[token]);
        if (labels[token] == kNoLabel) continue;
        filled.back() = best[0];
        json words = json::array(), scores = json::array();
        for (const WordScore& word : word_scores({best, 2 * kBestWords}, *tokenizer_)) {
          words.push_back(word.text);
          scores.push_back(word.score);
        }
        masks.push_back({{"words", words}, {"scores", scores}});
        best += 2 * kBestWords;
      }
      use({{"text", tokenizer_->decode(without_ends(filled))}, {"masks", masks}});
    }
  }

 private:
  // A row as the model reads it; its labels are the tokens that can be masked.
  struct Read {
    Example example;
    bool is_shortened = false;
  };

  const std::string& text_in(const DataRow& row) const { return text_of(row, data_.text_column, "data.text_column"); }

  Read example_of_text(const DataRow& row, int64_t most) const {
    const std::string& text = text_in(row);
    const auto [encoding, is_shortened, _] = encode_at_most(*tokenizer_, std::string_view(text), nullptr, most);
    Example example{.ids = encoding.ids};
    example.types.assign(encoding.types.begin(), encoding.types.end());
    for (size_t token = 0; token < encoding.size(); ++token) {
      example.labels.push_back(encoding.is_special(token) ? kNoLabel : encoding.ids[token]);
      if (data_.whole_word_mask) example.continues.push_back(continues_word(encoding, token));
    }
    return {std::move(example), is_shortened};
  }

  // Special tokens are those that special_tokens_mask marks, or else those with a role in the tokenizer. If a row has
  // labels, tokens without one are not masked either.
  Example example_of_tokens(const DataRow& row, const TokenisedRow& tokens) const {
    if (data_.whole_word_mask)
      throw DataError(cat(row.where,
                          ": 'input_ids' do not show where words begin, which whole_word_mask needs; set "
                          "data.whole_word_mask to false, or use the text"));
    Example example{.ids = tokens.ids, .types = tokens.types};
    example.types.resize(tokens.ids.size());
    const auto marks = has_column(row, kMarks) ? mask_of_tokens(row, tokens, kMarks) : std::vector<bool>();
    const auto labels = has_column(row, "labels") ? word_labels(row, tokens) : tokens.ids;
    for (size_t token = 0; token < tokens.ids.size(); ++token) {
      const int32_t id = tokens.ids[token];
      const bool is_special = marks.empty() ? has_role(id) : marks[token];
      if (labels[token] != kNoLabel && labels[token] != id)
        throw DataError(cat(row.where, ": 'labels' has ", labels[token], " where 'input_ids' has ", id,
                            "; leave out 'labels': other tokens are masked in each epoch"));
      example.labels.push_back(is_special ? kNoLabel : labels[token]);
    }
    return example;
  }

  bool has_role(int32_t id) const {
    return std::ranges::any_of(std::array{SpecialToken::pad, SpecialToken::cls, SpecialToken::sep, SpecialToken::mask,
                                          SpecialToken::unk, SpecialToken::bos, SpecialToken::eos},
                               [&](SpecialToken role) { return tokenizer_->special(role) == id; });
  }

  static constexpr const char* kMarks = "special_tokens_mask";

  // The tokens except for those that the tokenizer puts around a text.
  std::vector<int32_t> without_ends(std::vector<int32_t> ids) const {
    std::erase_if(ids, [&](int32_t id) {
      return std::ranges::any_of(std::array{SpecialToken::cls, SpecialToken::sep, SpecialToken::bos, SpecialToken::eos},
                                 [&](SpecialToken role) { return tokenizer_->special(role) == id; });
    });
    return ids;
  }

  DataOptions data_;
  TokenisedInputs inputs_;
  TokenizerPtr tokenizer_;
  int32_t mask_;
};

}  // namespace

std::unique_ptr<LabelledTask> masked_lm(const Config& config, const TokenizerPtr& tokenizer) {
  return std::make_unique<MaskedLm>(config, tokenizer);
}

}  // namespace shardline
