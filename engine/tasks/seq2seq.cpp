#include "engine/tasks/seq2seq.h"

#include <algorithm>

#include "core/error.h"
#include "core/files/json_type.h"
#include "engine/config/rules/program_rules.h"
#include "engine/data/source/tokenised_row.h"
#include "engine/metrics/rouge.h"
#include "engine/tasks/bounded_encoding.h"

namespace shardline {
namespace {

using nlohmann::json;

std::string stripped(const std::string& text) {
  constexpr const char* kSpace = " \t\n\r\v\f";
  const size_t begin = text.find_first_not_of(kSpace);
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

class Seq2SeqLm final : public LabelledTask {
 public:
  Seq2SeqLm(const Config& config, TokenizerPtr tokenizer)
      : data_(config.data), has_columns_(reads_columns(config)), tokenizer_(std::move(tokenizer)) {}

  ExampleShape shape() const override { return {.types = true, .labels = true, .sequences = true}; }

  RowExamples encode(const DataRow& row, bool labelled) const override {
    if (has_columns_) return of_columns(row, labelled);
    if (const auto tokens = tokenised_row(row, most_of_source())) return of_tokens(row, *tokens, labelled);
    const std::string source = data_.prefix + text_of(row, data_.source_column, "data.source_column");
    const auto from = encode_at_most(*tokenizer_, std::string_view(source), nullptr, most_of_source());
    if (from.encoding.size() == 0) throw DataError(cat(row.where, ": '", data_.source_column, "' has no tokens"));
    if (!labelled) return {.examples = {example_of(from.encoding.ids, {})}, .shortened = from.is_shortened};
    const auto to = encoded_target(row);
    return {.examples = {example_of(from.encoding.ids, to.encoding.ids)},
            .shortened = from.is_shortened || to.is_shortened};
  }

  std::string settings() const override {
    return cat("seq2seq-lm ", json::array({data_.source_column, data_.target_column, data_.prefix}).dump(), '\n',
               data_.sequence_length, ' ', data_.max_target_length, ' ', tokenizer_->digest());
  }

  bool uses_predictions() const override { return false; }

  std::optional<TargetRule> targets() const override {
    return TargetRule{.most_tokens = data_.max_target_length, .end = tokenizer_->eos()};
  }

  // The metrics are in percent.
  MetricValues metrics(const Predicted& predicted) const override {
    RougeScores sum;
    double exact = 0;
    int64_t texts = 0;
    for_each_predicted_row(predicted, [&](const DataRow& row, int64_t first) {
      const std::string text = text_without_specials(predicted.targets.at(first));
      const std::string wanted = has_target_ids(row) ? text_without_specials(target_ids(row))
                                                     : text_of(row, data_.target_column, "data.target_column");
      const RougeScores scores = rouge(text, wanted);
      sum.rouge1 += scores.rouge1;
      sum.rouge2 += scores.rouge2;
      sum.rouge_l += scores.rouge_l;
      sum.rouge_lsum += scores.rouge_lsum;
      exact += stripped(text) == stripped(wanted);
      ++texts;
    });
    const double percent = 100.0 / std::max<int64_t>(texts, 1);
    return {{"rouge1", sum.rouge1 * percent},
            {"rouge2", sum.rouge2 * percent},
            {"rougeL", sum.rouge_l * percent},
            {"rougeLsum", sum.rouge_lsum * percent},
            {"exact_match", exact * percent}};
  }

  void predictions(const Predicted&, const UsePrediction&) const override {
    SL_ASSERT(false, "predict refuses this task");
  }

 private:
  static Example example_of(const std::vector<int32_t>& source, const std::vector<int32_t>& target) {
    Example example{.ids = source};
    example.types.assign(source.size(), 0);
    example.labels.assign(source.size(), kNoLabel);
    example.ids.insert(example.ids.end(), target.begin(), target.end());
    example.labels.insert(example.labels.end(), target.begin(), target.end());
    example.types.resize(example.ids.size(), 1);
    return example;
  }

  // Whether the target is the ids in "labels", and not a text.
  bool has_target_ids(const DataRow& row) const {
    return is_tokenised(row) || (has_columns_ && has_column(row, "labels"));
  }

  // The source has a row for each hidden state of the model.
  RowExamples of_columns(const DataRow& row, bool labelled) const {
    const std::vector<int32_t> source(most_of_source());
    if (!labelled || has_target_ids(row)) return of_ids(row, source, labelled);
    const auto to = encoded_target(row);
    return {.examples = {example_of(source, to.encoding.ids)}, .shortened = to.is_shortened};
  }

  BoundedEncoding encoded_target(const DataRow& row) const {
    const std::string& target = text_of(row, data_.target_column, "data.target_column");
    auto to = encode_at_most(*tokenizer_, std::string_view(target), nullptr, data_.max_target_length);
    if (to.encoding.size() == 0) throw DataError(cat(row.where, ": '", data_.target_column, "' has no tokens"));
    return to;
  }

  RowExamples of_tokens(const DataRow& row, const TokenisedRow& tokens, bool labelled) const {
    if (tokens.ids.empty()) throw DataError(cat(row.where, ": 'input_ids' has no tokens"));
    return of_ids(row, tokens.ids, labelled);
  }

  RowExamples of_ids(const DataRow& row, const std::vector<int32_t>& source, bool labelled) const {
    const auto target = labelled ? target_ids(row) : std::vector<int32_t>();
    if (std::cmp_greater(target.size(), data_.max_target_length))
      throw DataError(cat(row.where, ": 'labels' has ", target.size(), " tokens, but data.max_target_length is ",
                          data_.max_target_length, "; make it larger, or the targets shorter"));
    return {.examples = {example_of(source, target)}};
  }

  // The ids in the column "labels" of a tokenised row; -100 stands where it is padded.
  static std::vector<int32_t> target_ids(const DataRow& row) {
    const json& column = column_of(row, "labels", "it to a list of ids");
    std::vector<int32_t> ids;
    for (const json& value : column.is_array() ? column : json::array({column})) {
      const int64_t id = value.is_number_integer() ? value.get<int64_t>() : -1;
      if (id == kNoLabel) continue;
      if (id < 0 || !std::in_range<int32_t>(id))
        throw DataError(cat(row.where, ": 'labels' must be a list of ids; got ", json_shown(value)));
      ids.push_back(id);
    }
    if (ids.empty()) throw DataError(cat(row.where, ": 'labels' has no tokens"));
    return ids;
  }

  int64_t most_of_source() const { return data_.sequence_length - data_.max_target_length; }

  std::string text_without_specials(std::vector<int32_t> ids) const {
    std::erase_if(ids, [&](int32_t id) {
      for (const SpecialToken role :
           {SpecialToken::pad, SpecialToken::bos, SpecialToken::eos, SpecialToken::cls, SpecialToken::sep})
        if (tokenizer_->special(role) == id) return true;
      return false;
    });
    return tokenizer_->decode(ids);
  }

  DataOptions data_;
  bool has_columns_;  // whether there are columns of tensors
  TokenizerPtr tokenizer_;
};

}  // namespace

std::unique_ptr<LabelledTask> seq2seq_lm(const Config& config, const TokenizerPtr& tokenizer) {
  return std::make_unique<Seq2SeqLm>(config, tokenizer);
}

}  // namespace shardline
