// Metrics of predicted numbers, equal to scipy's and scikit-learn's. Both spans have the same length.
#pragma once
#include <span>

namespace shardline {

// Pearson's correlation, in [-1, 1]. NaN if all predictions or all labels are equal (which includes fewer than two), or
// if one is not finite.
double pearson_correlation(std::span<const double> predictions, std::span<const double> labels);

// Pearson's correlation of ranks, in [-1, 1]; equal values have the mean of their ranks. NaN if all predictions or all
// labels are equal (which includes fewer than two), or if one is NaN.
double spearman_correlation(std::span<const double> predictions, std::span<const double> labels);

// NaN without examples.
double mean_squared_error(std::span<const double> predictions, std::span<const double> labels);

}  // namespace shardline
