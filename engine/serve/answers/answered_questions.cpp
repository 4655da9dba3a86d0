#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "core/error.h"
#include "engine/data/text/character_places.h"
#include "engine/data/text/characters.h"
#include "engine/data/text/utf8.h"
#include "engine/serve/answers/answers.h"
#include "engine/serve/answers/request_text.h"
#include "engine/tasks/context_windows.h"
#include "engine/tasks/predicted_scores.h"

namespace shardline {
namespace {

using nlohmann::json;

constexpr int64_t kMostAnswers = 100;

// The defaults are those of the pipeline in transformers 4; version 5 has none.
struct QuestionOptions {
  int64_t answers = 1;
  int64_t answer_tokens = 15;
  int64_t window_tokens = 384, shared_tokens = 128;
  bool may_be_none = false, whole_words = true;

  // Spans of a window that are considered: some of them may become the same words.
  int64_t spans() const { return whole_words ? 2 * answers + 10 : answers; }
};

QuestionOptions question_options(const JsonValue& parameters, const ModelFacts& facts) {
  QuestionOptions options;
  options.window_tokens = std::min(options.window_tokens, facts.cut_tokens());
  if (const auto most = integer_in(parameters, "max_seq_len", 1)) {
    options.window_tokens = *most;
    if (*most > facts.most_tokens)
      parameters.at("max_seq_len").fail(cat("must be at most ", facts.most_tokens, ", the model's maximum"));
  }
  options.shared_tokens =
      integer_in(parameters, "doc_stride", 0).value_or(std::min<int64_t>(options.window_tokens / 2, 128));
  if (options.shared_tokens > options.window_tokens)
    parameters.at("doc_stride").fail(cat("must be at most max_seq_len, which is ", options.window_tokens));
  options.answers = integer_in(parameters, "top_k", 1).value_or(options.answers);
  if (options.answers > kMostAnswers) parameters.at("top_k").fail(cat("must be at most ", kMostAnswers));
  options.answer_tokens = integer_in(parameters, "max_answer_len", 1).value_or(options.answer_tokens);
  options.may_be_none = parameters.flag("handle_impossible_answer", false);
  options.whole_words = parameters.flag("align_to_words", true);
  return options;
}

struct Question {
  std::string context;
  std::vector<Encoding> windows;
};

// earlier: the number of windows of earlier contexts.
Question read_question(const JsonValue& input, const ModelFacts& facts, const QuestionOptions& options,
                       int64_t earlier) {
  if (!input.json().is_object()) input.fail("must be {\"question\": ..., \"context\": ...}");
  input.require_keys_among({"question", "context"});
  const std::string question = input.at("question").text();
  Question made{.context = input.at("context").text()};
  if (made.context.empty()) input.at("context").fail("is empty", "send a text that contains the answer");
  require_bounded(input, question);
  require_bounded(input, made.context);
  const TextOrWords context = std::string_view(made.context);
  Encoding whole = facts.tokenizer->encode_example(std::string_view(question), &context, {}).front();
  require_known_ids(input, whole, facts);
  if (std::ranges::count(whole.sequences, 1) == 0)
    input.at("context").fail("has no tokens", "send a text that contains the answer");
  if (std::cmp_less_equal(whole.size(), options.window_tokens)) {
    made.windows.push_back(std::move(whole));
    return made;
  }
  const int64_t of_context = std::ranges::count(whole.sequences, 1), others = std::ssize(whole.ids) - of_context;
  const int64_t fresh = options.window_tokens - others - options.shared_tokens;  // new tokens in each further window
  if (fresh < 1)
    input.fail(cat("leaves no room for new tokens in a window of ", options.window_tokens, " tokens: ", others,
                   " are not part of the context, and windows share ", options.shared_tokens),
               "send a shorter question, a smaller parameters.doc_stride or a larger parameters.max_seq_len");
  require_few_windows(input, earlier + of_context / fresh,
                      "send shorter contexts, fewer in a request, or a smaller parameters.doc_stride");
  made.windows =
      context_windows(*facts.tokenizer, question, made.context, {options.window_tokens, options.shared_tokens});
  return made;
}

// Probabilities, by one column of the logits, for the tokens whose element of `may` is true.
std::vector<double> probabilities(const Logits& logits, int64_t column, const std::vector<bool>& may) {
  std::vector<double> values;
  for (int64_t token = 0; token < logits.rows(); ++token)
    values.push_back(may[token] ? logits.row(token)[column] : -10000);
  return softmax_of(values);
}

struct Span {
  int64_t first = 0, last = 0;  // tokens
  double score = 0;
};

std::string lower(std::string_view text) {
  std::string lowered;
  for (size_t offset = 0; offset < text.size();)
    for (const char32_t c : lower_case(next_code_point(text, offset))) append_utf8(lowered, c);
  return lowered;
}

// Collects the answers of a question from its windows.
class Answers {
 public:
  Answers(const Question& question, const Tokenizer& tokenizer, const QuestionOptions& options)
      : question_(question), cls_(tokenizer.special(SpecialToken::cls)), options_(options), places_(question.context) {}

  void add(const Encoding& window, const Logits& logits) {
    std::vector<bool> may;  // by token: whether it may begin or end an answer, or stands for "no answer"
    for (size_t token = 0; token < window.size(); ++token)
      may.push_back(window.sequences[token] == 1 || window.ids[token] == cls_);
    std::vector<double> starts = probabilities(logits, 0, may), ends = probabilities(logits, 1, may);
    none_ = std::min(none_, starts[0] * ends[0]);
    starts[0] = ends[0] = 0;
    for (const Span& span : best_spans(window, starts, ends)) add(window, span);
  }

  json best() {
    if (options_.may_be_none) found_.push_back({.text = "", .score = none_});
    std::ranges::stable_sort(found_, [](const Found& a, const Found& b) { return a.score > b.score; });
    json answers = json::array();
    for (size_t i = 0; i < found_.size() && std::cmp_less(i, options_.answers); ++i) {
      const auto& [text, score, begin, end] = found_[i];
      answers.push_back(
          {{"score", score}, {"start", places_.of_byte(begin)}, {"end", places_.of_byte(end)}, {"answer", text}});
    }
    return answers.size() == 1 ? answers.front() : answers;
  }

 private:
  struct Found {
    std::string text;
    double score = 0;
    size_t begin = 0, end = 0;
  };

  std::vector<Span> best_spans(const Encoding& window, const std::vector<double>& starts,
                               const std::vector<double>& ends) const {
    std::vector<Span> spans;
    const auto of_context = context_spans(window);
    const int64_t tokens = std::ssize(starts);
    for (int64_t first = 0; first < tokens; ++first) {
      if (!of_context[first]) continue;
      for (int64_t last = first; last < std::min(tokens, first + options_.answer_tokens); ++last)
        if (of_context[last]) spans.push_back({first, last, starts[first] * ends[last]});
    }
    const auto end = spans.begin() + std::min(options_.spans(), std::ssize(spans));
    std::partial_sort(spans.begin(), end, spans.end(), [](const Span& a, const Span& b) { return a.score > b.score; });
    spans.erase(end, spans.end());
    return spans;
  }

  void add(const Encoding& window, const Span& span) {
    size_t begin = window.offsets[span.first].begin, end = window.offsets[span.last].end;
    if (options_.whole_words) {
      begin = window.offsets[edge_of_word(window, span.first, -1)].begin;
      end = window.offsets[edge_of_word(window, span.last, +1)].end;
    }
    const std::string text = question_.context.substr(begin, end - std::min(begin, end));
    const auto [same, is_new] = places_in_found_.emplace(lower(text), found_.size());
    if (is_new)
      found_.push_back({text, span.score, begin, end});
    else
      found_[same->second].score += span.score;
  }

  // The first or the last token of a token's word in this window.
  static int64_t edge_of_word(const Encoding& window, int64_t token, int64_t step) {
    const auto is_same = [&](int64_t other) {
      return other >= 0 && std::cmp_less(other, window.size()) && window.sequences[other] == 1 &&
             window.words[other] == window.words[token];
    };
    int64_t edge = token;
    while (is_same(edge + step)) edge += step;
    return edge;
  }

  const Question& question_;
  std::optional<int32_t> cls_;
  const QuestionOptions& options_;
  CharacterPlaces places_;
  double none_ = std::numeric_limits<double>::max();
  std::vector<Found> found_;
  std::unordered_map<std::string, size_t> places_in_found_;  // by the text in lower case
};

}  // namespace

json answered_questions(const Invocation& request, const ServedModel& model) {
  const ModelFacts& facts = model.facts();
  const JsonValue parameters = request.parameters();
  require_parameters_among(parameters, {"top_k", "doc_stride", "max_answer_len", "max_seq_len", "max_question_len",
                                        "handle_impossible_answer", "align_to_words"});
  const QuestionOptions options = question_options(parameters, facts);
  std::vector<Question> questions;
  std::vector<Example> examples;
  for (const JsonValue& input : request.each()) {
    model.require_time();
    questions.push_back(read_question(input, facts, options, std::ssize(examples)));
    for (const Encoding& window : questions.back().windows) examples.push_back(example_of(window));
  }
  const std::vector<Logits> logits = model.logits(std::move(examples));
  json answers = json::array();
  size_t next = 0;
  for (const Question& question : questions) {
    Answers found(question, *facts.tokenizer, options);
    for (const Encoding& window : question.windows) {
      model.require_time();
      found.add(window, logits[next++]);
    }
    answers.push_back(found.best());
  }
  return request.answers_one(answers) ? answers.front() : answers;
}

}  // namespace shardline
