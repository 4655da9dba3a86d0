#include "engine/metrics/answer_spans.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "core/error.h"

namespace shardline {
namespace {

float score_of(const Answer& answer) {
  return answer.start_logit + answer.end_logit;
}

bool has_text(const Answer& answer) {
  return answer.placeholder || answer.span.begin < answer.span.end;
}

void check_logits(std::span<const float> logits, const char* which, size_t window) {
  for (size_t token = 0; token < logits.size(); ++token) {
    if (std::isfinite(logits[token])) continue;
    throw RunError(cat("answers cannot be ranked: the ", which, " logit of token ", token, " in window ", window,
                       " of a question is ", logits[token],
                       "; the model's weights have diverged or overflow in this number type"));
  }
}

void check_window(const AnswerWindow& window, size_t index) {
  const size_t tokens = window.offsets.size();
  const size_t contexts = window.most_context.size();
  SL_ASSERT(tokens > 0 && window.start_logits.size() == tokens && window.end_logits.size() == tokens &&
                (contexts == 0 || contexts == tokens),
            "window ", index, " has ", tokens, " tokens, ", window.start_logits.size(), " start and ",
            window.end_logits.size(), " end logits, ", contexts, " marks of context");
  check_logits(window.start_logits, "start", index);
  check_logits(window.end_logits, "end", index);
}

std::vector<size_t> largest(std::span<const float> logits, int64_t count) {
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t(0));
  const auto end = order.begin() + std::min<int64_t>(count, order.size());
  std::partial_sort(order.begin(), end, order.end(),
                    [&](size_t a, size_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a > b; });
  order.erase(end, order.end());
  return order;
}

void append_answers(const AnswerWindow& window, const AnswerOptions& options, std::vector<Answer>& answers) {
  const auto ends = largest(window.end_logits, options.n_best);
  for (const size_t start : largest(window.start_logits, options.n_best)) {
    if (!window.offsets[start]) continue;
    if (!window.most_context.empty() && !window.most_context[start]) continue;
    for (const size_t end : ends) {
      if (!window.offsets[end] || end < start || int64_t(end - start) >= options.max_tokens) continue;
      answers.push_back({{window.offsets[start]->begin, window.offsets[end]->end},
                         window.start_logits[start],
                         window.end_logits[end]});
    }
  }
}

Answer least_likely_null(std::span<const AnswerWindow> windows) {
  std::vector<Answer> nulls;
  for (const auto& window : windows) nulls.push_back({{}, window.start_logits[0], window.end_logits[0]});
  return *std::ranges::min_element(nulls, {}, score_of);
}

void set_probabilities(std::vector<Answer>& answers) {
  const float highest = score_of(*std::ranges::max_element(answers, {}, score_of));
  double sum = 0;
  for (Answer& answer : answers) {
    answer.probability = std::exp(double(score_of(answer) - highest));
    sum += answer.probability;
  }
  for (Answer& answer : answers) answer.probability /= sum;
}

}  // namespace

AnswerChoice choose_answers(std::span<const AnswerWindow> windows, const AnswerOptions& options) {
  SL_ASSERT(!windows.empty() && options.n_best > 0, windows.size(), " windows, n_best ", options.n_best);
  AnswerChoice choice;
  auto& best = choice.best;
  for (size_t i = 0; i < windows.size(); ++i) {
    check_window(windows[i], i);
    append_answers(windows[i], options, best);
  }
  const Answer null = least_likely_null(windows);
  if (options.may_be_none) best.push_back(null);
  std::ranges::stable_sort(best, std::greater(), score_of);
  if (std::cmp_greater(best.size(), options.n_best)) best.resize(options.n_best);
  const bool null_lost = std::ranges::find(best, AnswerSpan(), &Answer::span) == best.end();
  if (options.may_be_none && null_lost) best.push_back(null);
  // An empty token of the context is an answer without text, too.
  const bool any_text = std::ranges::any_of(best, has_text);
  if (!any_text && (options.may_be_none || best.size() <= 1)) best.insert(best.begin(), Answer{.placeholder = true});
  set_probabilities(best);

  choice.chosen = 0;
  if (!options.may_be_none) return choice;
  const auto text = std::ranges::find_if(best, has_text);
  choice.null_score_diff = score_of(null) - text->start_logit - text->end_logit;
  choice.chosen = text - best.begin();
  if (choice.null_score_diff > options.null_score_diff_threshold) choice.chosen.reset();
  return choice;
}

std::string_view answer_text(const Answer& answer, std::string_view context) {
  if (answer.placeholder) return "empty";
  if (!has_text(answer)) return "";
  const auto& [begin, end] = answer.span;
  SL_ASSERT(begin >= 0 && std::cmp_less_equal(end, context.size()), "an answer of bytes ", begin, " to ", end,
            " in a context of ", context.size());
  return context.substr(begin, end - begin);
}

}  // namespace shardline
