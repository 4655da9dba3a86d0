// Metrics of predicted classes, equal to scikit-learn's.
//
// `predictions` and `labels` hold the class of each example: any numbers, in the same order and of the same length.
#pragma once
#include <cstdint>
#include <span>

#include "engine/metrics/precision_recall.h"

namespace shardline {

// NaN without examples.
double accuracy(std::span<const int64_t> predictions, std::span<const int64_t> labels);

// Scores of the class `positive` against all others; zeros if it is absent.
PrecisionRecall binary_scores(std::span<const int64_t> predictions, std::span<const int64_t> labels,
                              int64_t positive = 1);

// Over the classes that occur among predictions or labels: the mean of their scores, the scores of their summed counts,
// or the mean weighted by the number of their labels.
enum class Average { macro, micro, weighted };
PrecisionRecall average_scores(std::span<const int64_t> predictions, std::span<const int64_t> labels, Average average);

// Micro-averaged scores of examples that may have several labels: each element is 1 if an example has a label, else 0.
// The order of the [examples x labels] elements does not matter.
PrecisionRecall multi_label_scores(std::span<const int64_t> predictions, std::span<const int64_t> labels);

// For any number of classes; 0 if all predictions or all labels are of one class.
double matthews_correlation(std::span<const int64_t> predictions, std::span<const int64_t> labels);

}  // namespace shardline
