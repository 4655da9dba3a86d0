// The best answers to a question from the logits of its windows, chosen like those of postprocess_qa_predictions in
// transformers' run_qa.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace shardline {

struct AnswerSpan {
  int64_t begin = 0;  // bytes in the context
  int64_t end = 0;

  bool operator==(const AnswerSpan&) const = default;
};

// A part of the context that the model saw together with the question. All spans have an element for each token; the
// first token stands for "no answer".
struct AnswerWindow {
  std::span<const float> start_logits;
  std::span<const float> end_logits;
  std::span<const std::optional<AnswerSpan>> offsets;  // nothing for tokens outside of the context
  // Not 0 for tokens that have at least as much context here as in any other window; answers may begin only at these.
  // Empty: answers may begin anywhere.
  std::span<const uint8_t> most_context = {};
};

struct AnswerOptions {
  int64_t n_best = 20;       // answers to return, and logits of a window to try as start and as end
  int64_t max_tokens = 30;   // in an answer
  bool may_be_none = false;  // version_2_with_negative
  float null_score_diff_threshold = 0;
};

struct Answer {
  AnswerSpan span;  // empty: there is no answer
  float start_logit = 0;
  float end_logit = 0;
  double probability = 0;    // among the answers of the list
  bool placeholder = false;  // first in a list in which no answer has text; its own text is "empty", as in transformers
};

struct AnswerChoice {
  std::vector<Answer> best;  // not empty, the highest score first; with `may_be_none`, "no answer" is among them
  // With `may_be_none`: the lowest score (sum of both logits) of "no answer" over the windows minus the score of the
  // best text. Otherwise 0.
  float null_score_diff = 0;
  std::optional<size_t> chosen;  // index in `best`; nothing: no answer, because null_score_diff is too large

  Answer answer() const { return chosen ? best[*chosen] : Answer(); }
};

// At least one window, each with at least one token. Among equal logits later tokens come first; equal scores keep the
// order of windows and logits. Throws RunError for a logit that is not finite.
AnswerChoice choose_answers(std::span<const AnswerWindow> windows, const AnswerOptions& options);

// `context` is the text that the offsets are about.
std::string_view answer_text(const Answer& answer, std::string_view context);

}  // namespace shardline
