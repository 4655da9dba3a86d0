// What the outputs of a model mean: scores of labels, and words for masks. Used for predictions for files and for the
// answers of a served model.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/data/tokenizer/tokenizer.h"
#include "models/families/head_choice.h"

namespace shardline {

// The function that turns logits into scores.
enum class ScoreFunction { softmax, sigmoid, none };

// softmax: one of the labels is right; sigmoid: each may be; none: the outputs are numbers.
ScoreFunction score_function_of(HeadChoice::Problem problem);

// The following functions need at least one logit or score.
std::vector<double> softmax_of(std::span<const double> logits);
std::vector<double> scores_of(std::span<const double> logits, ScoreFunction function);

struct LabelScore {
  std::string label;
  double score = 0;
};
// The label with the highest score, and the first one if several have it. names: the names of all labels.
LabelScore best_label(std::span<const double> scores, const std::vector<std::string>& names);

struct WordScore {
  int32_t id = 0;
  std::string text;
  double score = 0;
};
// The words that a model has found for a mask, the most probable first. found: a row of head_best_words
// (tensor_parallel/ops/cross_entropy.h).
std::vector<WordScore> word_scores(std::span<const double> found, const Tokenizer& tokenizer);

}  // namespace shardline
