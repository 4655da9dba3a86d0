#include "engine/metrics/regression_metrics.h"

#include <limits>
#include <vector>

#include "core/error.h"
#include "tests/engine/metrics/golden.h"

namespace shardline::regression_metrics_test {
namespace {

using Numbers = std::vector<double>;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("correlations and errors equal those of scipy and scikit-learn") {
  for (const auto& c : golden_cases("regression")) {
    INFO(c.dump());
    const Numbers predictions = c.at("predictions");
    const Numbers labels = c.at("labels");
    CHECK(is_near(pearson_correlation(predictions, labels), c.at("pearson")));
    CHECK(is_near(spearman_correlation(predictions, labels), c.at("spearman")));
    CHECK(is_near(mean_squared_error(predictions, labels), c.at("squared")));
  }
}

TEST_CASE("equal values have the mean of their ranks") {
  // Ranks 1, 2.5, 2.5, 4 and 1, 2, 3, 4.
  CHECK(is_near(spearman_correlation(Numbers{-5, 0, 0, 100}, Numbers{1, 2, 3, 4}), std::sqrt(0.9)));
}

TEST_CASE("Spearman's correlation accepts infinite values, Pearson's is NaN for them") {
  const Numbers rising = {1, 2, 3};
  CHECK(is_near(spearman_correlation(Numbers{-kInfinity, 0, kInfinity}, rising), 1.0));
  CHECK(std::isnan(pearson_correlation(Numbers{-kInfinity, 0, kInfinity}, rising)));
  CHECK(std::isnan(pearson_correlation(Numbers{0, kInfinity, 1}, rising)));
}

TEST_CASE("a correlation that is not defined is NaN") {
  const Numbers rising = {1, 2, 3};
  for (const Numbers& undefined : {Numbers{4, 4, 4}, Numbers{0, kNaN, 1}, Numbers{kNaN, kNaN, kNaN}}) {
    CHECK(std::isnan(pearson_correlation(undefined, rising)));
    CHECK(std::isnan(pearson_correlation(rising, undefined)));
    CHECK(std::isnan(spearman_correlation(undefined, rising)));
    CHECK(std::isnan(spearman_correlation(rising, undefined)));
  }
  for (const Numbers& few : {Numbers{}, Numbers{1}}) {
    CHECK(std::isnan(pearson_correlation(few, few)));
    CHECK(std::isnan(spearman_correlation(few, few)));
  }
  CHECK(std::isnan(mean_squared_error({}, {})));
  CHECK(mean_squared_error(Numbers{1, 5}, Numbers{2, 3}) == 2.5);
}

TEST_CASE("as many predicted numbers as labels are needed") {
  CHECK_THROWS_AS(pearson_correlation(Numbers{1, 2}, Numbers{1}), InvariantError);
  CHECK_THROWS_AS(spearman_correlation(Numbers{1, 2}, Numbers{1}), InvariantError);
  CHECK_THROWS_AS(mean_squared_error(Numbers{1, 2}, Numbers{1}), InvariantError);
}

}  // namespace shardline::regression_metrics_test
