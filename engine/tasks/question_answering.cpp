#include "engine/tasks/question_answering.h"

#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <array>
#include <limits>

#include "core/error.h"
#include "core/files/json_type.h"
#include "engine/data/source/tokenised_row.h"
#include "engine/data/text/character_places.h"
#include "engine/metrics/answer_metrics.h"
#include "engine/metrics/answer_spans.h"
#include "engine/tasks/context_windows.h"
#include "engine/tasks/tokenised_inputs.h"

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

struct Gold {
  std::vector<std::string> texts;
  std::vector<int64_t> starts;  // code points of the context
};

Gold gold_in(const DataRow& row, const std::string& answers_column) {
  const json& answers = column_of(row, answers_column, "data.answers_column");
  const auto fail = [&] {
    throw DataError(cat(row.where, ": '", answers_column,
                        "' must have a list \"text\" and a list \"answer_start\" of the same length"));
  };
  if (!answers.is_object() || !answers.contains("text") || !answers.contains("answer_start")) fail();
  const json &texts = answers.at("text"), &starts = answers.at("answer_start");
  if (!texts.is_array() || !starts.is_array() || texts.size() != starts.size()) fail();
  Gold gold;
  for (size_t i = 0; i < texts.size(); ++i) {
    const int64_t start = starts[i].is_number_integer() ? starts[i].get<int64_t>() : -1;
    if (!texts[i].is_string() || start < 0) fail();
    gold.texts.push_back(texts[i].get<std::string>());
    gold.starts.push_back(start);
  }
  return gold;
}

class QuestionAnswering final : public LabelledTask {
 public:
  QuestionAnswering(const Config& config, TokenizerPtr tokenizer)
      : data_(config.data), inputs_(config), tokenizer_(std::move(tokenizer)) {
    const auto cls = tokenizer_->special(SpecialToken::cls);
    none_ = cls ? cls : tokenizer_->special(SpecialToken::bos);
  }

  ExampleShape shape() const override { return {.types = true, .targets = TargetKind::answers, .width = 2}; }

  // A tokenised row is a window.
  RowExamples encode(const DataRow& row, bool labelled) const override {
    if (const auto tokens = tokens_of(row)) {
      const int64_t none = none_of(tokens->ids);
      const auto answer = labelled ? answer_tokens_of(row, *tokens) : std::array{none, none};
      return {.examples = {{.ids = tokens->ids, .types = tokens->types, .targets = {answer.begin(), answer.end()}}}};
    }
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

  // With logits that are not finite, no answers can be chosen, and all metrics but the numbers of questions are NaN.
  MetricValues metrics(const Predicted& predicted) const override {
    if (scores_of(predicted).isfinite().all().item<bool>()) return finite_metrics(predicted);
    MetricValues values = finite_metrics({predicted.data, at::zeros_like(predicted.logits), predicted.files});
    for (auto& [name, value] : values)
      if (!name.ends_with("total")) value = std::numeric_limits<double>::quiet_NaN();
    return values;
  }

  void predictions(const Predicted& predicted, const UsePrediction& use) const override {
    for_each_answer(predicted, [&](const Answered& answered) {
      const auto& [row, choice, tokens] = answered;
      const auto text = [&](const Answer& answer) { return text_of_answer(answered, answer); };
      json prediction = {{"answer", text(choice.answer())}};
      if (const auto id = row.columns.find("id"); id != row.columns.end()) prediction["id"] = *id;
      if (data_.version_2_with_negative) prediction["null_score_diff"] = choice.null_score_diff;
      if (choice.chosen) {
        const Answer answer = choice.answer();
        const auto [begin, end] = answer.span;
        prediction["score"] = answer.probability;
        if (tokens) {
          prediction["start"] = tokens->places[begin];
          prediction["end"] = begin < end ? tokens->places[end - 1] + 1 : tokens->places[begin];
        } else {
          const CharacterPlaces places(context_of(row));
          prediction["start"] = places.of_byte(begin);
          prediction["end"] = places.of_byte(end);
        }
      }
      json best = json::array();
      for (const Answer& answer : choice.best)
        best.push_back({{"text", text(answer)},
                        {"probability", answer.probability},
                        {"start_logit", answer.start_logit},
                        {"end_logit", answer.end_logit}});
      prediction["n_best"] = std::move(best);
      use(prediction);
    });
  }

 private:
  using Spans = std::vector<std::optional<AnswerSpan>>;

  struct Answered {
    const DataRow& row;
    AnswerChoice choice;
    std::optional<TokenisedRow> tokens;  // set for a tokenised row: spans count these instead of bytes of the context
  };

  MetricValues finite_metrics(const Predicted& predicted) const {
    std::vector<AnsweredQuestion> questions;
    for_each_answer(predicted, [&](const Answered& answered) {
      const auto& [row, choice, tokens] = answered;
      questions.push_back({.gold = tokens ? gold_of_tokens(row, *tokens) : gold_of(row).texts,
                           .prediction = text_of_answer(answered, choice.answer())});
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

  const std::string& context_of(const DataRow& row) const {
    return text_of(row, data_.context_column, "data.context_column");
  }

  std::vector<Encoding> windows_of(const DataRow& row) const {
    // Without the white space at its beginning, which run_qa.py removes, too.
    std::string_view question = text_of(row, data_.question_column, "data.question_column");
    question.remove_prefix(std::min(question.find_first_not_of(" \t\n\v\f\r"), question.size()));
    const std::string& context = context_of(row);
    try {
      return context_windows(*tokenizer_, question, context, {data_.sequence_length, data_.doc_stride});
    } catch (const DataError&) {
      refuse_windows(row, question, context);
      throw;
    }
  }

  // Throws if the question of a row leaves no room for new tokens of the context in each window.
  void refuse_windows(const DataRow& row, std::string_view question, std::string_view context) const {
    const TextOrWords second = context;
    const Encoding whole = tokenizer_->encode_example(question, &second, {}).front();
    const int64_t of_question = std::ranges::count(whole.sequences, 0);
    const int64_t special = std::ssize(whole.ids) - of_question - std::ranges::count(whole.sequences, 1);
    const int64_t room = data_.sequence_length - of_question - special;
    if (room < 1)
      throw DataError(cat(row.where, ": the question has ", of_question, " tokens, which with ", special,
                          " special ones leave no room for the context in data.sequence_length, now ",
                          data_.sequence_length, "; shorten the question or use a larger data.sequence_length"));
    if (data_.doc_stride >= room)
      throw ConfigError(cat("/data/doc_stride: must be smaller than the ", room,
                            " tokens of the context that fit in a sample beside the question of ", row.where, "; got ",
                            data_.doc_stride, "; use a smaller data.doc_stride or a larger data.sequence_length, now ",
                            data_.sequence_length));
  }

  Gold gold_of(const DataRow& row) const { return gold_in(row, data_.answers_column); }

  // The token that stands for "no answer".
  int64_t none_of(const std::vector<int32_t>& ids) const {
    if (!none_) return 0;
    const auto found = std::ranges::find(ids, *none_);
    return found == ids.end() ? 0 : found - ids.begin();
  }

  std::optional<TokenisedRow> tokens_of(const DataRow& row) const {
    auto tokens = inputs_.read(row, data_.sequence_length);
    if (tokens && tokens->ids.empty()) throw DataError(cat(row.where, ": 'input_ids' has no tokens"));
    return tokens;
  }

  // The first and the last token of a tokenised row's answer.
  static std::array<int64_t, 2> answer_tokens_of(const DataRow& row, const TokenisedRow& tokens) {
    const auto token_at = [&](const char* column) {
      const json& value = column_of(row, column, "it to the place of the answer in input_ids");
      const int64_t place = value.is_number_integer() ? value.get<int64_t>() : -1;
      const auto found = std::ranges::lower_bound(tokens.places, place);
      if (found == tokens.places.end() || *found != place)
        throw DataError(
            cat(row.where, ": '", column, "' must be the place of a token in 'input_ids'; got ", json_shown(value)));
      return found - tokens.places.begin();
    };
    const std::array<int64_t, 2> answer = {token_at("start_positions"), token_at("end_positions")};
    if (answer[0] > answer[1]) throw DataError(cat(row.where, ": 'end_positions' is before 'start_positions'"));
    return answer;
  }

  std::vector<std::string> gold_of_tokens(const DataRow& row, const TokenisedRow& tokens) const {
    const auto [first, last] = answer_tokens_of(row, tokens);
    if (last == none_of(tokens.ids)) return {};
    return {tokenizer_->decode(std::span(tokens.ids).subspan(first, last + 1 - first))};
  }

  std::string text_of_answer(const Answered& answered, const Answer& answer) const {
    const auto& tokens = answered.tokens;
    const auto [begin, end] = answer.span;
    if (tokens && begin < end) return tokenizer_->decode(std::span(tokens->ids).subspan(begin, end - begin));
    return std::string(answer_text(answer, tokens ? "" : context_of(answered.row)));
  }

  // The context of a tokenised row is what follows the last token between two texts.
  Spans spans_of(const TokenisedRow& tokens) const {
    const auto is_around = [&](int64_t token) {
      return std::ranges::any_of(std::array{SpecialToken::cls, SpecialToken::sep, SpecialToken::bos, SpecialToken::eos},
                                 [&](SpecialToken role) { return tokenizer_->special(role) == tokens.ids[token]; });
    };
    Spans spans(tokens.ids.size());
    int64_t token = std::ssize(spans) - 1;
    while (token >= 0 && is_around(token)) --token;
    for (; token >= 0 && !is_around(token); --token) spans[token] = AnswerSpan{token, token + 1};
    return spans;
  }

  // The first and the last token of the first answer; twice the token for "no answer" if the window lacks a part of it.
  std::array<int64_t, 2> answer_tokens_of(const Encoding& window, std::string_view context, const Gold& gold) const {
    const std::array none = {none_of(window.ids), none_of(window.ids)};
    if (gold.texts.empty()) return none;
    const size_t begin = byte_of_code_point(context, gold.starts[0]), end = begin + gold.texts[0].size();
    int64_t first = 0, last = std::ssize(window.sequences) - 1;  // the context's first and last token
    while (first <= last && window.sequences[first] != 1) ++first;
    while (last >= first && window.sequences[last] != 1) --last;
    const auto begin_of = [&](int64_t token) -> size_t { return window.offsets[token].begin; };
    const auto end_of = [&](int64_t token) -> size_t { return window.offsets[token].end; };
    if (first > last || begin_of(first) > begin || end_of(last) < end) return none;
    while (first <= last && begin_of(first) <= begin) ++first;
    while (last >= 0 && window.sequences[last] == 1 && end_of(last) >= end) --last;
    return {first - 1, last + 1};
  }

  static at::Tensor scores_of(const Predicted& predicted) { return predicted.logits.to(at::kFloat); }

  void for_each_answer(const Predicted& predicted, const std::function<void(const Answered&)>& use) const {
    const float threshold = data_.null_score_diff_threshold;
    const AnswerOptions options{.n_best = data_.n_best_size,
                                .max_tokens = data_.max_answer_length,
                                .may_be_none = data_.version_2_with_negative,
                                .null_score_diff_threshold = threshold};
    const Examples& data = predicted.data;
    const at::Tensor logits = scores_of(predicted).t().contiguous();  // starts, then ends
    const auto* starts = logits.const_data_ptr<float>();
    const auto* ends = starts + logits.size(1);
    for_each_predicted_row(predicted, [&](const DataRow& row, int64_t first) {
      auto tokens = tokens_of(row);
      std::vector<Spans> windows;
      if (tokens)
        windows.push_back(spans_of(*tokens));
      else
        for (const Encoding& window : windows_of(row)) windows.push_back(context_spans(window));
      std::vector<AnswerWindow> parts;
      for (const Spans& spans : windows) {
        const int64_t window = first + std::ssize(parts);
        SL_ASSERT(std::cmp_equal(spans.size(), data.set->tokens(data[window])), row.where,
                  " gave different windows when it was encoded");
        parts.push_back({.start_logits = {starts, spans.size()}, .end_logits = {ends, spans.size()}, .offsets = spans});
        starts += spans.size();
        ends += spans.size();
      }
      use({row, choose_answers(parts, options), std::move(tokens)});
    });
  }

  DataOptions data_;
  TokenisedInputs inputs_;
  TokenizerPtr tokenizer_;
  std::optional<int32_t> none_;
};

}  // namespace

std::vector<std::string> answer_notes(const Config& config, const std::vector<DataFile>& files) {
  std::string unanswered, misplaced;  // the first of these rows
  int64_t misplaced_count = 0;
  for (const DataFile& file : files) {
    const auto rows = open_rows(file);
    for (DataRow row; rows->next(row);) {
      if (is_tokenised(row)) continue;
      const Gold gold = gold_in(row, config.data.answers_column);
      if (gold.texts.empty()) {
        if (unanswered.empty()) unanswered = row.where;
        continue;
      }
      const std::string_view context = text_of(row, config.data.context_column, "data.context_column");
      if (context.substr(byte_of_code_point(context, gold.starts[0])).starts_with(gold.texts[0])) continue;
      if (misplaced_count++ == 0) misplaced = row.where;
    }
  }
  std::vector<std::string> notes;
  if (!unanswered.empty() && !config.data.version_2_with_negative)
    notes.push_back(cat(unanswered,
                        ": the question has no answer; to predict which questions have none, and to evaluate that, set "
                        "data.version_2_with_negative"));
  if (misplaced_count > 0)
    notes.push_back(cat(misplaced_count,
                        misplaced_count == 1 ? " answer is not the text at its answer_start, in "
                                             : " answers are not the text at their answer_start, such as ",
                        misplaced, "; training uses the place of answer_start and the length of the text"));
  return notes;
}

std::unique_ptr<LabelledTask> question_answering(const Config& config, const TokenizerPtr& tokenizer) {
  return std::make_unique<QuestionAnswering>(config, tokenizer);
}

}  // namespace shardline
