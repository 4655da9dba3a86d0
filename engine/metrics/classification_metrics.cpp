#include "engine/metrics/classification_metrics.h"

#include <cmath>
#include <limits>
#include <map>

#include "core/error.h"

namespace shardline {
namespace {

using Classes = std::span<const int64_t>;

std::map<int64_t, MatchCounts> counts_by_class(Classes predictions, Classes labels) {
  SL_ASSERT(predictions.size() == labels.size(), predictions.size(), " predictions, ", labels.size(), " labels");
  std::map<int64_t, MatchCounts> counts;
  for (size_t i = 0; i < labels.size(); ++i) {
    ++counts[predictions[i]].predicted;
    ++counts[labels[i]].expected;
    if (predictions[i] == labels[i]) ++counts[labels[i]].correct;
  }
  return counts;
}

MatchCounts sum_of(const std::map<int64_t, MatchCounts>& counts) {
  MatchCounts total;
  for (const auto& [label, of_class] : counts) total += of_class;
  return total;
}

}  // namespace

double accuracy(Classes predictions, Classes labels) {
  if (labels.empty()) return std::numeric_limits<double>::quiet_NaN();
  return average_scores(predictions, labels, Average::micro).recall;
}

PrecisionRecall binary_scores(Classes predictions, Classes labels, int64_t positive) {
  return precision_recall(counts_by_class(predictions, labels)[positive]);
}

PrecisionRecall average_scores(Classes predictions, Classes labels, Average average) {
  const auto counts = counts_by_class(predictions, labels);
  if (average == Average::micro) return precision_recall(sum_of(counts));
  PrecisionRecall total;
  double weights = 0;
  for (const auto& [label, of_class] : counts) {
    const PrecisionRecall scores = precision_recall(of_class);
    const double weight = average == Average::macro ? 1 : double(of_class.expected);
    total.precision += weight * scores.precision;
    total.recall += weight * scores.recall;
    total.f1 += weight * scores.f1;
    weights += weight;
  }
  if (weights == 0) return {};
  return {total.precision / weights, total.recall / weights, total.f1 / weights};
}

PrecisionRecall multi_label_scores(Classes predictions, Classes labels) {
  return binary_scores(predictions, labels, 1);
}

double matthews_correlation(Classes predictions, Classes labels) {
  const auto counts = counts_by_class(predictions, labels);
  const double examples = double(labels.size());
  // Covariances times examples^2: of predictions with labels, of predictions and of labels with themselves.
  double both = double(sum_of(counts).correct) * examples;
  double of_predictions = examples * examples;
  double of_labels = examples * examples;
  for (const auto& [label, of_class] : counts) {
    const double predicted = double(of_class.predicted);
    const double expected = double(of_class.expected);
    both -= predicted * expected;
    of_predictions -= predicted * predicted;
    of_labels -= expected * expected;
  }
  if (of_predictions * of_labels == 0) return 0;
  return both / std::sqrt(of_predictions * of_labels);
}

}  // namespace shardline
