#include "engine/tasks/predicted_scores.h"

#include <algorithm>
#include <cmath>

namespace shardline {

ScoreFunction score_function_of(HeadChoice::Problem problem) {
  switch (problem) {
    case HeadChoice::Problem::single_label:
      return ScoreFunction::softmax;
    case HeadChoice::Problem::multi_label:
      return ScoreFunction::sigmoid;
    case HeadChoice::Problem::regression:
      break;
  }
  return ScoreFunction::none;
}

std::vector<double> softmax_of(std::span<const double> logits) {
  const double largest = *std::ranges::max_element(logits);
  std::vector<double> probabilities;
  double sum = 0;
  for (const double logit : logits) sum += probabilities.emplace_back(std::exp(logit - largest));
  for (double& probability : probabilities) probability /= sum;
  return probabilities;
}

std::vector<double> scores_of(std::span<const double> logits, ScoreFunction function) {
  if (function == ScoreFunction::softmax) return softmax_of(logits);
  std::vector<double> scores(logits.begin(), logits.end());
  if (function == ScoreFunction::sigmoid)
    for (double& score : scores) score = 1 / (1 + std::exp(-score));
  return scores;
}

LabelScore best_label(std::span<const double> scores, const std::vector<std::string>& names) {
  const auto best = std::ranges::max_element(scores);
  return {names.at(best - scores.begin()), *best};
}

std::vector<WordScore> word_scores(std::span<const double> found, const Tokenizer& tokenizer) {
  const size_t count = found.size() / 2;
  std::vector<WordScore> words;
  for (size_t i = 0; i < count && std::isfinite(found[count + i]); ++i) {
    const int32_t id = found[i];
    words.push_back({id, tokenizer.decode(std::span(&id, 1)), std::exp(found[count + i])});
  }
  return words;
}

}  // namespace shardline
