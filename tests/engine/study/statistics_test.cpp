#include "engine/study/statistics.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/catch.h"

namespace shardline::statistics_test {
namespace {

using nlohmann::json;

// What numpy and scipy compute; golden/make_statistics.py writes it.
const json& golden() {
  static const json all = json::parse(std::ifstream(SHARDLINE_SOURCE_DIR "/tests/engine/study/golden/statistics.json"));
  return all;
}

auto near(double value, double relative = 1e-11, double absolute = 1e-15) {
  return Approx(value).epsilon(relative).margin(absolute);
}

Points points_of(const json& x, const json& y) {
  Points points;
  for (size_t i = 0; i < x.size(); ++i) points.emplace_back(x[i], y[i]);
  return points;
}

}  // namespace

TEST_CASE("Quantiles of Student's t are scipy's", "[study]") {
  for (const auto& one : golden()["quantiles"]) {
    INFO(one.dump());
    CHECK(t_quantile(one[0], one[1]) == near(one[2], 1e-10, 1e-13));
  }
}

TEST_CASE("Mean, deviation and interval are numpy's and scipy's", "[study]") {
  for (const auto& one : golden()["spreads"]) {
    INFO(one.dump());
    const Spread spread = spread_of(one["values"]);
    CHECK(spread.count == one["values"].size());
    CHECK(spread.mean == near(one["mean"]));
    CHECK(spread.deviation.value() == near(one["deviation"], 1e-10));
    CHECK(spread.low() == near(one["low"], 1e-10));
    CHECK(spread.high() == near(one["high"], 1e-10));
  }
  const Spread alone = spread_of({7});
  CHECK(alone.mean == 7);
  CHECK_FALSE(alone.deviation);
  CHECK(alone.high() == 7);
}

TEST_CASE("A fitted line, its band and the correlation are numpy's and scipy's", "[study]") {
  for (const auto& one : golden()["lines"]) {
    const Points points = points_of(one["x"], one["y"]);
    const auto line = fitted_line(points);
    REQUIRE(line);
    CHECK(line->slope() == near(one["slope"], 1e-9, 1e-12));
    CHECK(line->intercept() == near(one["intercept"], 1e-9));
    for (size_t i = 0; i < one["places"].size(); ++i)
      CHECK(line->half_band(one["places"][i]).value() == near(one["half_band"][i], 1e-9));
    CHECK(correlation(points).value() == near(one["correlation"], 1e-9));
    CHECK(correlation(points).value() == near(one["numpy_correlation"], 1e-9));
  }
}

TEST_CASE("A line, band or correlation that is undefined is left out", "[study]") {
  CHECK_FALSE(fitted_line({}));
  CHECK_FALSE(fitted_line({{2, 1}, {2, 5}}));
  const auto line = fitted_line({{0, 1}, {2, 5}});
  CHECK(line.value().at(1) == 3);
  CHECK_FALSE(line->half_band(1));
  CHECK_FALSE(correlation({{2, 1}, {2, 5}}));
  CHECK_FALSE(correlation({{1, 1}, {2, 1}}));
  CHECK(correlation({{1, 3}, {2, 1}}).value() == Approx(-1));
}

TEST_CASE("The Pareto front has the points that no other beats", "[study]") {
  for (const auto& one : golden()["fronts"]) {
    Points points;
    for (const auto& point : one["points"]) points.emplace_back(point[0], point[1]);
    CHECK(pareto_front(points) == one["front"].get<std::vector<size_t>>());
  }
  CHECK(pareto_front({}).empty());
}

}  // namespace shardline::statistics_test
