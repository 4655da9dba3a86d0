// What a study computes from its measurements.
#pragma once
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace shardline {

// Mean and spread of repeated measurements.
struct Spread {
  size_t count = 0;
  double mean = 0;
  // With at least two values: the sample's deviation (divided by count - 1), and half the width of the interval that
  // contains the true mean with a probability of 95 % if the values are normally distributed (Student's t).
  std::optional<double> deviation, half_width;

  double low() const { return mean - half_width.value_or(0); }
  double high() const { return mean + half_width.value_or(0); }
};
Spread spread_of(const std::vector<double>& values);  // needs at least one

// The value that a variable with Student's t distribution stays below with this probability. 0 < probability < 1,
// degrees >= 1.
double t_quantile(double probability, double degrees);

using Points = std::vector<std::pair<double, double>>;  // x, y

// y = intercept + slope * x with the least sum of squared errors.
class FittedLine {
 public:
  // Needs two different values of x.
  explicit FittedLine(const Points& points);

  double slope() const { return slope_; }
  double intercept() const { return intercept_; }
  double at(double x) const { return intercept_ + slope_ * x; }
  // Half the width, at x, of the band that contains the true line's value there with a probability of 95 %. Unset for
  // two points, which leave no error to estimate.
  std::optional<double> half_band(double x) const;

 private:
  size_t count_;
  double mean_x_, squares_x_;  // sum of squared distances from the mean
  double slope_, intercept_, squared_errors_ = 0;
};
// Unset if fewer than two values of x differ.
std::optional<FittedLine> fitted_line(const Points& points);

// Pearson's coefficient; unset if either variable is constant.
std::optional<double> correlation(const Points& points);

// The points that no other point beats by being smaller in one coordinate and not larger in the other. Returns indices,
// by ascending x, with all of several equal points.
std::vector<size_t> pareto_front(const Points& points);

}  // namespace shardline
