#include "engine/tasks/question_answering.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "engine/metrics/answer_metrics.h"
#include "engine/metrics/answer_spans.h"

namespace shardline {
namespace {

using nlohmann::json;

// The byte at which code point `count` of a text begins; the text's size if there are fewer.
size_t byte_of_code_point(std::string_view text, int64_t count) {
  size_t byte = 0;
  for (; byte < text.size(); ++byte) {
    const bool begins = (text[byte] & 0xC0) != 0x80;
    if (begins && count-- == 0) break;
  }
  return byte;
}

// The code points of the first bytes of a text.
int64_t code_points(std::string_view text, int64_t bytes) {
  return std::ranges::count_if(text.substr(0, bytes), [](char c) { return (c & 0xC0) != 0x80; });
}

struct Gold {
  std::vector<std::string> texts;
  std::vector<int64_t> starts;  // code points of the context
};

class QuestionAnswering final : public LabelledTask {
 public:
  QuestionAnswering(const Config& config, TokenizerPtr tokenizer)
      : data_(config.data), tokenizer_(std::move(tokenizer)) {
    const auto cls = tokenizer_->special(SpecialToken::cls);
    none_ = cls ? cls : tokenizer_->special(SpecialToken::bos);
  }

  ExampleShape shape() const override { return {.types = true, .targets = TargetKind::answers, .width = 2}; }

  RowExamples encode(const DataRow& row, bool labelled) const override {
    const Gold gold = labelled ? gold_of(row) : Gold{};
    const std::string& context = context_of(row);
    RowExamples made;
    for (const Encoding& window : windows_of(row)) {
      Example example{.ids = window.ids};
      const auto tokens = answer_tokens_of(window, context, gold);
      example.targets.assign(tokens.begin(), tokens.end());
      example.types.assign(window.types.begin(), window.types.end());
      made.examples.push_back(std::move(example));
    }
    return made;
  }

  std::string settings() const override {
    return cat("question-answering ", data_.question_column, '\n', data_.context_column, '\n', data_.answers_column,
               '\n', data_.sequence_length, ' ', data_.doc_stride, ' ', tokenizer_->digest());
  }

  MetricValues metrics(const Predicted& predicted) const override {
    std::vector<AnsweredQuestion> questions;
    for_each_answer(predicted, [&](const DataRow& row, const AnswerChoice& choice) {
      questions.push_back(
          {.gold = gold_of(row).texts, .prediction = std::string(answer_text(choice, context_of(row)))});
    });
    const AnswerMetrics metrics = answer_metrics(questions);
    if (!data_.version_2_with_negative) return {{"exact_match", metrics.all.exact}, {"f1", metrics.all.f1}};
    MetricValues values = {{"exact", metrics.all.exact}, {"f1", metrics.all.f1}};
    const auto add = [&](const std::string& prefix, const std::optional<AnswerMeans>& means) {
      if (!means) return;
      values.emplace_back(prefix + "exact", means->exact);
      values.emplace_back(prefix + "f1", means->f1);
      values.emplace_back(prefix + "total", means->total);
    };
    add("HasAns_", metrics.has_answer);
    add("NoAns_", metrics.no_answer);
    values.emplace_back("best_exact", metrics.best_exact.score);
    values.emplace_back("best_exact_thresh", metrics.best_exact.threshold);
    values.emplace_back("best_f1", metrics.best_f1.score);
    values.emplace_back("best_f1_thresh", metrics.best_f1.threshold);
    return values;
  }

  void predictions(const Predicted& predicted, const UsePrediction& use) const override {
    for_each_answer(predicted, [&](const DataRow& row, const AnswerChoice& choice) {
      const std::string& context = context_of(row);
      json prediction = {{"answer", answer_text(choice, context)}};
      if (const auto id = row.columns.find("id"); id != row.columns.end()) prediction["id"] = *id;
      if (data_.version_2_with_negative) prediction["null_score_diff"] = choice.null_score_diff;
      if (choice.chosen) {
        const Answer& answer = choice.best[*choice.chosen];
        prediction["score"] = answer.probability;
        prediction["start"] = code_points(context, answer.span.begin);
        prediction["end"] = code_points(context, answer.span.end);
      }
      json best = json::array();
      for (const Answer& answer : choice.best)
        best.push_back({{"text", answer_text(answer, context)},
                        {"probability", answer.probability},
                        {"start_logit", answer.start_logit},
                        {"end_logit", answer.end_logit}});
      prediction["n_best"] = std::move(best);
      use(prediction);
    });
  }

 private:
  const std::string& context_of(const DataRow& row) const {
    return text_of(row, data_.context_column, "data.context_column");
  }

  std::vector<Encoding> windows_of(const DataRow& row) const {
    // Without the white space at its beginning, which run_qa.py removes, too.
    std::string_view question = text_of(row, data_.question_column, "data.question_column");
    question.remove_prefix(std::min(question.find_first_not_of(" \t\n\v\f\r"), question.size()));
    const TextOrWords context = std::string_view(context_of(row));
    return tokenizer_->encode_example(question, &context,
                                      {.truncation = Truncation::only_second,
                                       .max_length = data_.sequence_length,
                                       .windows = true,
                                       .stride = data_.doc_stride});
  }

  Gold gold_of(const DataRow& row) const {
    const json& answers = column_of(row, data_.answers_column, "data.answers_column");
    const auto fail = [&] {
      throw DataError(cat(row.where, ": '", data_.answers_column,
                          "' must have a list \"text\" and a list \"answer_start\" of the same length"));
    };
    if (!answers.is_object() || !answers.contains("text") || !answers.contains("answer_start")) fail();
    const json &texts = answers.at("text"), &starts = answers.at("answer_start");
    if (!texts.is_array() || !starts.is_array() || texts.size() != starts.size()) fail();
    Gold gold;
    for (size_t i = 0; i < texts.size(); ++i) {
      if (!texts[i].is_string() || !starts[i].is_number_unsigned()) fail();
      gold.texts.push_back(texts[i].get<std::string>());
      gold.starts.push_back(starts[i].get<int64_t>());
    }
    return gold;
  }

  // The token that stands for "no answer".
  int64_t none_of(const Encoding& window) const {
    if (!none_) return 0;
    const auto found = std::ranges::find(window.ids, *none_);
    return found == window.ids.end() ? 0 : found - window.ids.begin();
  }

  // The first and the last token of the first answer; the token for none twice if the window lacks a part of it.
  std::array<int64_t, 2> answer_tokens_of(const Encoding& window, std::string_view context, const Gold& gold) const {
    const std::array none = {none_of(window), none_of(window)};
    if (gold.texts.empty()) return none;
    const size_t begin = byte_of_code_point(context, gold.starts[0]), end = begin + gold.texts[0].size();
    int64_t first = 0, last = std::ssize(window.sequences) - 1;  // of the context
    while (first <= last && window.sequences[first] != 1) ++first;
    while (last >= first && window.sequences[last] != 1) --last;
    const auto begin_of = [&](int64_t token) -> size_t { return window.offsets[token].begin; };
    const auto end_of = [&](int64_t token) -> size_t { return window.offsets[token].end; };
    if (first > last || begin_of(first) > begin || end_of(last) < end) return none;
    while (first <= last && begin_of(first) <= begin) ++first;
    while (last >= 0 && window.sequences[last] == 1 && end_of(last) >= end) --last;
    return {first - 1, last + 1};
  }

  void for_each_answer(const Predicted& predicted,
                       const std::function<void(const DataRow& row, const AnswerChoice& choice)>& use) const {
    const float threshold = data_.null_score_diff_threshold;
    const AnswerOptions options{.n_best = data_.n_best_size,
                                .max_tokens = data_.max_answer_length,
                                .may_be_none = data_.version_2_with_negative,
                                .null_score_diff_threshold = threshold};
    const Examples& data = predicted.data;
    const at::Tensor logits = predicted.logits.to(at::kFloat).t().contiguous();  // starts, then ends
    const auto* starts = logits.const_data_ptr<float>();
    const auto* ends = starts + logits.size(1);
    int64_t index = 0, next = 0;  // of the row, and the place of its first window in data
    for_each_row(predicted.files, [&](const DataRow& row, int64_t) {
      const bool is_evaluated = next < data.size() && data.set->row(data[next]) == index++;
      if (!is_evaluated) return;
      const std::vector<Encoding> windows = windows_of(row);
      std::vector<std::vector<std::optional<AnswerSpan>>> offsets;
      std::vector<AnswerWindow> parts;
      for (const Encoding& window : windows) {
        auto& spans = offsets.emplace_back();
        for (size_t token = 0; token < window.size(); ++token) {
          spans.emplace_back();
          if (window.sequences[token] != 1) continue;
          const int64_t begin = window.offsets[token].begin, end = window.offsets[token].end;
          spans.back() = AnswerSpan{begin, end};
        }
      }
      for (size_t i = 0; i < windows.size(); ++i, ++next) {
        const size_t tokens = windows[i].size();
        SL_ASSERT(std::cmp_equal(tokens, data.set->tokens(data[next])), row.where, " has other windows than before");
        parts.push_back({.start_logits = {starts, tokens}, .end_logits = {ends, tokens}, .offsets = offsets[i]});
        starts += tokens;
        ends += tokens;
      }
      use(row, choose_answers(parts, options));
    });
  }

  DataOptions data_;
  TokenizerPtr tokenizer_;
  std::optional<int32_t> none_;
};

}  // namespace

std::unique_ptr<LabelledTask> question_answering(const Config& config, const TokenizerPtr& tokenizer) {
  return std::make_unique<QuestionAnswering>(config, tokenizer);
}

}  // namespace shardline
