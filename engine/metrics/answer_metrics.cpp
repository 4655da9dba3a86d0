#include "engine/metrics/answer_metrics.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "core/error.h"
#include "engine/metrics/answer_tokens.h"

namespace shardline {
namespace {

using Tokens = std::vector<std::string>;

int64_t common_tokens(Tokens a, Tokens b) {
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  Tokens common;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(common));
  return std::ssize(common);
}

double token_f1(const Tokens& prediction, const Tokens& gold) {
  if (prediction.empty() || gold.empty()) return prediction.empty() && gold.empty();
  const double common = double(common_tokens(prediction, gold));
  if (common == 0) return 0;
  const double precision = common / double(prediction.size());
  const double recall = common / double(gold.size());
  return 2 * precision * recall / (precision + recall);
}

class Mean {
 public:
  void add(AnswerScore score) {
    exact_ += score.exact;
    f1_ += score.f1;
    ++total_;
  }
  int64_t total() const { return total_; }
  AnswerMeans in_percent() const { return {100 * exact_ / double(total_), 100 * f1_ / double(total_), total_}; }
  std::optional<AnswerMeans> if_any() const { return total_ ? std::optional(in_percent()) : std::nullopt; }

 private:
  double exact_ = 0;
  double f1_ = 0;
  int64_t total_ = 0;
};

// Starts with no question answered, and answers one after the other in the order of their probabilities.
BestAnswers best_answers(std::span<const AnsweredQuestion> questions, std::span<const AnswerScore> scores,
                         double AnswerScore::*score, int64_t without_answer) {
  std::vector<size_t> order(questions.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return questions[a].no_answer_probability < questions[b].no_answer_probability;
  });
  double current = double(without_answer);
  BestAnswers best{current, 0};
  for (const size_t i : order) {
    if (!questions[i].gold.empty()) {
      current += scores[i].*score;
    } else if (!questions[i].prediction.empty()) {
      current -= 1;
    }
    if (current > best.score) best = {current, questions[i].no_answer_probability};
  }
  best.score = 100 * best.score / double(questions.size());
  return best;
}

}  // namespace

AnswerScore answer_score(std::string_view prediction, std::span<const std::string> gold) {
  const Tokens predicted = answer_tokens(prediction);
  AnswerScore best;
  bool any = false;
  for (const std::string& answer : gold) {
    const Tokens accepted = answer_tokens(answer);
    if (accepted.empty()) continue;
    any = true;
    best.exact = std::max(best.exact, double(predicted == accepted));
    best.f1 = std::max(best.f1, token_f1(predicted, accepted));
  }
  if (!any) best = {double(predicted.empty()), double(predicted.empty())};
  return best;
}

AnswerMetrics answer_metrics(std::span<const AnsweredQuestion> questions, double threshold) {
  std::vector<AnswerScore> scores;
  Mean all, has_answer, no_answer;
  for (const AnsweredQuestion& question : questions) {
    SL_ASSERT(!std::isnan(question.no_answer_probability), "question ", scores.size(), " has a NaN probability");
    const AnswerScore raw = answer_score(question.prediction, question.gold);
    scores.push_back(raw);
    const double right = question.gold.empty();
    const AnswerScore score = question.no_answer_probability > threshold ? AnswerScore{right, right} : raw;
    all.add(score);
    (question.gold.empty() ? no_answer : has_answer).add(score);
  }
  return {all.in_percent(), has_answer.if_any(), no_answer.if_any(),
          best_answers(questions, scores, &AnswerScore::exact, no_answer.total()),
          best_answers(questions, scores, &AnswerScore::f1, no_answer.total())};
}

}  // namespace shardline
