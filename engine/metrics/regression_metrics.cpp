#include "engine/metrics/regression_metrics.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "core/error.h"

namespace shardline {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

void check_lengths(std::span<const double> predictions, std::span<const double> labels) {
  SL_ASSERT(predictions.size() == labels.size(), predictions.size(), " predictions, ", labels.size(), " labels");
}

bool is_constant(std::span<const double> values) {
  return std::adjacent_find(values.begin(), values.end(), std::not_equal_to()) == values.end();
}

// The differences from the mean, scaled to length 1. They are first divided by the largest, so that no square
// overflows.
std::vector<double> standardized(std::span<const double> values) {
  std::vector<double> result(values.begin(), values.end());
  const double mean = std::accumulate(result.begin(), result.end(), 0.0) / double(result.size());
  double largest = 0;
  for (double& value : result) largest = std::max(largest, std::abs(value -= mean));
  double squares = 0;
  for (double& value : result) {
    value /= largest;
    squares += value * value;
  }
  for (double& value : result) value /= std::sqrt(squares);
  return result;
}

std::vector<double> ranks(std::span<const double> values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> result(values.size());
  for (size_t first = 0, end = 0; first < order.size(); first = end) {
    while (end < order.size() && values[order[end]] == values[order[first]]) ++end;
    for (size_t i = first; i < end; ++i) result[order[i]] = double(first + end - 1) / 2;
  }
  return result;
}

}  // namespace

double pearson_correlation(std::span<const double> predictions, std::span<const double> labels) {
  check_lengths(predictions, labels);
  if (is_constant(predictions) || is_constant(labels)) return kNaN;
  const std::vector<double> a = standardized(predictions);
  const std::vector<double> b = standardized(labels);
  const double correlation = std::clamp(std::inner_product(a.begin(), a.end(), b.begin(), 0.0), -1.0, 1.0);
  return a.size() == 2 ? std::round(correlation) : correlation;  // any two points are on a line
}

double spearman_correlation(std::span<const double> predictions, std::span<const double> labels) {
  check_lengths(predictions, labels);
  const auto is_nan = [](double value) { return std::isnan(value); };
  if (std::ranges::any_of(predictions, is_nan) || std::ranges::any_of(labels, is_nan)) return kNaN;
  return pearson_correlation(ranks(predictions), ranks(labels));
}

double mean_squared_error(std::span<const double> predictions, std::span<const double> labels) {
  check_lengths(predictions, labels);
  double squares = 0;
  for (size_t i = 0; i < labels.size(); ++i) squares += (predictions[i] - labels[i]) * (predictions[i] - labels[i]);
  return squares / double(labels.size());
}

}  // namespace shardline
