// SQuAD's metrics of answers, versions 1.1 and 2.0, equal to those of squad_evaluate in transformers.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shardline {

struct AnswerScore {
  double exact = 0;  // 1 or 0
  double f1 = 0;     // over the words
};

// The best score over `gold`, the accepted answers. If none of them has a word, a prediction without words is right.
AnswerScore answer_score(std::string_view prediction, std::span<const std::string> gold);

struct AnsweredQuestion {
  std::vector<std::string> gold;  // accepted answers; none: the question has no answer
  std::string prediction;         // empty: there is no answer
  double no_answer_probability = 0;
};

struct AnswerMeans {
  double exact = 0;  // in percent
  double f1 = 0;     // in percent
  int64_t total = 0;
};

// The best score that a threshold can give, and this threshold: questions with a larger no_answer_probability count as
// predicted to have no answer.
struct BestAnswers {
  double score = 0;  // in percent
  double threshold = 0;
};

struct AnswerMetrics {
  AnswerMeans all;                        // exact, f1, total; NaN, NaN, 0 without questions
  std::optional<AnswerMeans> has_answer;  // HasAns_*, if there are such questions
  std::optional<AnswerMeans> no_answer;   // NoAns_*, if there are such questions
  BestAnswers best_exact;
  BestAnswers best_f1;
};

// Questions whose no_answer_probability (not NaN) is above `threshold` count as predicted to have no answer. Among
// equal probabilities, the best thresholds depend on the order of the questions.
AnswerMetrics answer_metrics(std::span<const AnsweredQuestion> questions, double threshold = 1);

}  // namespace shardline
