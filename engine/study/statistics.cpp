#include "engine/study/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "core/error.h"

namespace shardline {
namespace {

constexpr double kProbability = 0.975;  // both tails of an interval of 95 %

// The continued fraction of the incomplete beta function (Abramowitz and Stegun 26.5.8), by Lentz's method.
double beta_fraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300, kNear = 1e-16;
  constexpr int kMostTerms = 10'000;
  const auto not_zero = [&](double value) { return std::abs(value) < kTiny ? kTiny : value; };
  double c = 1, d = 1 / not_zero(1 - (a + b) * x / (a + 1)), fraction = d;
  for (int m = 1; m < kMostTerms; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / not_zero(1 + even * d);
    c = not_zero(1 + even / c);
    fraction *= c * d;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / not_zero(1 + odd * d);
    c = not_zero(1 + odd / c);
    fraction *= c * d;
    if (std::abs(c * d - 1) < kNear) break;
  }
  return fraction;
}

// The regularised incomplete beta function.
double incomplete_beta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double front =
      std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x));
  return x < (a + 1) / (a + b + 2) ? front * beta_fraction(a, b, x) / a : 1 - front * beta_fraction(b, a, 1 - x) / b;
}

// The probability that a variable with Student's t distribution is above t >= 0.
double upper_tail(double t, double degrees) {
  return 0.5 * incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t));
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / values.size();
}

}  // namespace

Spread spread_of(const std::vector<double>& values) {
  SL_ASSERT(!values.empty(), "no values");
  Spread spread{.count = values.size(), .mean = mean_of(values)};
  if (values.size() < 2) return spread;
  double squares = 0;
  for (const double value : values) squares += (value - spread.mean) * (value - spread.mean);
  spread.deviation = std::sqrt(squares / (values.size() - 1));
  spread.half_width = t_quantile(kProbability, values.size() - 1.0) * *spread.deviation / std::sqrt(values.size());
  return spread;
}

double t_quantile(double probability, double degrees) {
  SL_ASSERT(probability > 0 && probability < 1 && degrees >= 1, probability, " with ", degrees, " degrees");
  if (probability < 0.5) return -t_quantile(1 - probability, degrees);
  double low = 0, high = 1;
  while (upper_tail(high, degrees) > 1 - probability) high *= 2;
  while (true) {  // bisect until the two are adjacent numbers
    const double middle = low + (high - low) / 2;
    if (middle <= low || middle >= high) return middle;
    (upper_tail(middle, degrees) > 1 - probability ? low : high) = middle;
  }
}

FittedLine::FittedLine(const Points& points) : count_(points.size()) {
  double mean_y = 0, products = 0;
  mean_x_ = squares_x_ = 0;
  for (const auto& [x, y] : points) {
    mean_x_ += x / count_;
    mean_y += y / count_;
  }
  for (const auto& [x, y] : points) {
    squares_x_ += (x - mean_x_) * (x - mean_x_);
    products += (x - mean_x_) * (y - mean_y);
  }
  SL_ASSERT(squares_x_ > 0, "all values of x are equal");
  slope_ = products / squares_x_;
  intercept_ = mean_y - slope_ * mean_x_;
  for (const auto& [x, y] : points) squared_errors_ += (y - at(x)) * (y - at(x));
}

std::optional<double> FittedLine::half_band(double x) const {
  if (count_ < 3) return {};
  const double degrees = count_ - 2.0;
  const double distance = x - mean_x_;
  return t_quantile(kProbability, degrees) *
         std::sqrt(squared_errors_ / degrees * (1.0 / count_ + distance * distance / squares_x_));
}

std::optional<FittedLine> fitted_line(const Points& points) {
  const bool is_spread = std::ranges::any_of(points, [&](const auto& p) { return p.first != points.front().first; });
  return is_spread ? std::optional(FittedLine(points)) : std::nullopt;
}

std::optional<double> correlation(const Points& points) {
  std::vector<double> x, y;
  for (const auto& [one, other] : points) {
    x.push_back(one);
    y.push_back(other);
  }
  const auto is_constant = [](const std::vector<double>& values) {
    return std::ranges::all_of(values, [&](double value) { return value == values.front(); });
  };
  if (is_constant(x) || is_constant(y)) return {};
  const double mean_x = mean_of(x), mean_y = mean_of(y);
  double products = 0, squares_x = 0, squares_y = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    products += (x[i] - mean_x) * (y[i] - mean_y);
    squares_x += (x[i] - mean_x) * (x[i] - mean_x);
    squares_y += (y[i] - mean_y) * (y[i] - mean_y);
  }
  return std::clamp(products / std::sqrt(squares_x) / std::sqrt(squares_y), -1.0, 1.0);
}

std::vector<size_t> pareto_front(const Points& points) {
  std::vector<size_t> order(points.size()), front;
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) { return std::tuple(points[i], i); });
  for (const size_t i : order)
    if (front.empty() || points[i].second < points[front.back()].second || points[i] == points[front.back()])
      front.push_back(i);
  return front;
}

}  // namespace shardline
