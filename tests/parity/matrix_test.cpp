#include "tests/parity/matrix.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/model/name_pattern.h"
#include "tests/case_sample.h"
#include "tests/parity/axes.h"
#include "tests/parity/bit_equality.h"
#include "tests/parity/faults.h"
#include "tests/parity/half.h"
#include "tests/parity/report.h"

#include "tests/catch.h"

namespace shardline::parity::matrix_test {
namespace {

// The list's first item and every n-th after it.
template <class Item>
std::vector<Item> every_nth(const std::vector<Item>& items, size_t n) {
  std::vector<Item> sample;
  for (size_t i = 0; i < items.size(); i += n) sample.push_back(items[i]);
  return sample;
}

std::vector<Measured> check_points(const std::vector<Point>& points) {
  REQUIRE(!points.empty());
  std::vector<Measured> results(points.size());
  at_once(points.size(), [&](size_t i) { results[i] = {points[i], measure(points[i])}; });
  for (const auto& [point, d] : results) {
    INFO(point.name());
    INFO("gradient " << d.gradient << " (" << d.worst_gradient << "), norm " << d.norm << ", loss " << d.loss
                     << ", change " << d.change << " (" << d.worst_change << "), copies " << d.copies);
    CHECK(d.exceeds(limits_of(point)) == "");
  }
  return results;
}

std::vector<MeasuredHalf> check_half(const std::vector<Point>& points) {
  REQUIRE(!points.empty());
  std::vector<MeasuredHalf> results(points.size());
  at_once(points.size(), [&](size_t i) { results[i] = measure_half(points[i]); });
  for (const auto& [point, layout, one] : results) {
    INFO(point.name());
    INFO("gradient " << layout.gradient << " (one process " << one.gradient << "), norm " << layout.norm << " ("
                     << one.norm << "), loss " << layout.loss << " (" << one.loss << "), copies " << layout.copies);
    CHECK(layout.exceeds(one) == "");
  }
  return results;
}

std::vector<Checked> check_half_faults() {
  const auto faults = planted_half_faults();
  REQUIRE(!faults.empty());
  std::vector<MeasuredHalf> tampered(faults.size());
  at_once(faults.size(), [&](size_t i) { tampered[i] = measure_half(faults[i].point, faults[i].tampering); });
  std::vector<Checked> results;
  for (size_t i = 0; i < faults.size(); ++i) {
    INFO(faults[i].what << ": " << tampered[i].point.name());
    const std::string caught = tampered[i].layout.exceeds(tampered[i].one);
    CHECK(caught != "");
    results.push_back({faults[i].what, tampered[i].point.name(), caught});
  }
  return results;
}

std::vector<Checked> check_twins(const std::vector<Twins>& twins) {
  REQUIRE(!twins.empty());
  // Many points are compared with the same run.
  std::map<std::string, Outcome> kept;
  std::vector<std::pair<const Point*, Outcome*>> runs;
  for (const auto& pair : twins)
    if (const auto [place, is_new] = kept.try_emplace(pair.one.name()); is_new)
      runs.emplace_back(&pair.one, &place->second);
  std::vector<Outcome> others(twins.size());
  for (size_t i = 0; i < twins.size(); ++i) runs.emplace_back(&twins[i].other, &others[i]);
  at_once(runs.size(), [&](size_t i) { *runs[i].second = run_point(*runs[i].first); });

  std::vector<Checked> results;
  for (size_t i = 0; i < twins.size(); ++i) {
    INFO(twins[i].what);
    const bool same = bit_equal(kept.at(twins[i].one.name()), others[i]);
    CHECK(same);
    results.push_back({twins[i].what, twins[i].other.name(), same ? "equal" : "differ"});
  }
  return results;
}

std::vector<Checked> check_faults() {
  const auto faults = planted_faults();
  REQUIRE(!faults.empty());
  // Many faults are planted into the same point, and share its run without faults.
  std::map<std::string, Difference> sound;
  std::vector<Difference> tampered(faults.size());
  std::vector<std::function<void()>> runs;
  for (size_t i = 0; i < faults.size(); ++i) {
    const auto& fault = faults[i];
    if (const auto [place, is_new] = sound.try_emplace(fault.point.name()); is_new)
      runs.push_back([&fault, of = &place->second] { *of = measure(fault.point); });
    runs.push_back([&fault, of = &tampered[i]] { *of = measure(fault.point, fault.tampering); });
  }
  at_once(runs.size(), [&](size_t i) { runs[i](); });
  std::vector<Checked> results;
  for (size_t i = 0; i < faults.size(); ++i) {
    INFO(faults[i].what << ": " << faults[i].point.name());
    const Limits limits = limits_of(faults[i].point);
    CHECK(sound.at(faults[i].point.name()).exceeds(limits) == "");
    if (faults[i].tampering.missed) CHECK(faults[i].tampering.missed() == "");
    const std::string caught = tampered[i].exceeds(limits);
    CHECK(caught != "");
    results.push_back({faults[i].what, faults[i].point.name(), caught});
  }
  return results;
}

}  // namespace

TEST_CASE("the points cover every pair of axis values", "[parity]") {
  CHECK(missing_pairs(matrix_axes(), pair_points()).empty());
  CHECK(missing_pairs(task_axes(), task_points()).empty());
  CHECK(missing_pairs(traced_axes(), traced_points()).empty());
  CHECK(task_points().size() + head_points().size() >= 250);
  CHECK(matrix_points().size() + fp32_points().size() >= 300);
  CHECK(choice_points().size() >= 80);
  CHECK(fp32_points().size() >= 12);
  int deep = 0;
  for (const auto& point : deep_points())
    deep += point.d >= 2 && point.p >= 2 && point.t >= 2 && point.dropout && point.short_batch;
  CHECK(deep >= 30);
  CHECK(planted_faults().size() >= 10);
}

TEST_CASE("an axis that is restricted to values it does not have gives no points", "[parity]") {
  CHECK_THROWS_AS(restricted(matrix_axes(), "P", {"5"}), shardline::InvariantError);
  CHECK_THROWS_AS(restricted(matrix_axes(), "Q", {"1"}), shardline::InvariantError);
  CHECK_THROWS_AS(restricted(matrix_axes(), "P", {}), shardline::InvariantError);
  CHECK_THROWS_AS(combinations(matrix_axes(), {"D", "Q"}, 1), shardline::InvariantError);
}

TEST_CASE("every number of real ranks that is tested has points", "[parity]") {
  for (const int world : {2, 4, 8})
    for (const auto& points : {pair_points(), fp32_points(), half_points(), some_task_points()}) {
      CAPTURE(world, points.size());
      CHECK(!with_world(points, world).empty());
    }
  for (const int world : {2, 3, 4, 6, 8}) CHECK(!with_world(matrix_points(), world).empty());
}

TEST_CASE("every pair of axis values gives the run of one process, float64", "[parity]") {
  check_points(pair_points());
}
TEST_CASE("tasks with labels give the run of one process, float64", "[parity][tasks]") {
  check_points(every_nth(task_points(), checks_all_cases() ? 1 : 3));
}
TEST_CASE("a sample of traced modules gives the run of one process, float64", "[parity][traced]") {
  check_points(every_nth(traced_points(), 5));
}
TEST_CASE("traced encoders of tasks give the run of one process, float64", "[parity][traced][tasks]") {
  check_points(every_nth(traced_task_points(), checks_all_cases() ? 1 : 2));
}
TEST_CASE("SGD, Adam and Adafactor give the run of one process, float64", "[parity][optim]") {
  check_points(optimizer_points());
}
TEST_CASE("a sample gives the run of one process, fp32", "[parity][fp32]") {
  check_points(fp32_points());
}
TEST_CASE("a sample in half precision is as near to fp32 as one process is", "[parity][half]") {
  const auto sample = every_nth(half_points(), 6);
  CHECK(sample.size() >= 20);
  check_half(sample);
}
TEST_CASE("injected faults are detected in half precision", "[parity][half][faults]") {
  check_half_faults();
}
TEST_CASE("a sample of the runs that must agree in every bit does", "[parity][bits]") {
  check_twins(every_nth(equal_twins(), 5));
}
TEST_CASE("with sharded gradients the schedule `simple` differs by rounding in the head's weight only",
          "[parity][bits]") {
  for (const char* sharding : {"ZeRO-2", "ZeRO-3"}) {
    const Point interleaved = {
        .d = 2, .p = 3, .dtype = "float32", .microbatches = 3, .dropout = true, .tied = false, .sharding = sharding};
    Point simple = interleaved;
    simple.pipeline = "simple";
    const Outcome one = run_point(interleaved), other = run_point(simple);
    CAPTURE(sharding);
    CHECK(compare(other, one, limits_of(simple)).exceeds(limits_of(simple)) == "");
    for (const auto& [name, gradient] : one.gradients) {
      CAPTURE(name);
      CHECK(at::equal(gradient, other.gradients.at(name)) == (name != "head.lm_head.weight"));
    }
  }
}
TEST_CASE("frozen parameters keep their bits, and the others have the gradients of the fully trained model",
          "[parity][frozen]") {
  for (const char* trained : {"head", "last blocks", "two layers", "biases"})
    for (const int p : {1, 3}) {
      const Point whole{.p = p, .microbatches = 3, .dropout = true, .tied = false, .steps = 2};
      Point part = whole;
      part.trained = trained;
      const Outcome all = run_point(whole), some = run_point(part);
      const auto patterns = trained_patterns(part).get<std::vector<NamePattern>>();
      int moved = 0;
      for (const auto& [name, gradient] : some.gradients) {
        CAPTURE(trained, p, name);
        const bool is_trained =
            std::ranges::any_of(patterns, [&](const auto& pattern) { return pattern.matches(name); });
        CHECK(at::equal(gradient, is_trained ? all.gradients.at(name) : gradient * 0));
        CHECK(at::equal(some.after.at(name), some.before.at(name)) != is_trained);
        moved += is_trained;
      }
      CHECK(moved > 0);
    }
}
TEST_CASE("injected faults are detected", "[parity][faults]") {
  check_faults();
}

// The remaining points of the matrix, on demand: parity_tests "[matrix]"
TEST_CASE("every axis value alone gives the run of one process, float64", "[.][matrix]") {
  check_points(single_points());
}
TEST_CASE("sizes that no degree divides give the run of one process, float64", "[.][matrix][deep]") {
  check_points(deep_points());
}
TEST_CASE("traced modules give the run of one process on every pair of axis values, float64", "[.][matrix][traced]") {
  check_points(traced_points());
}
TEST_CASE("all runs that must agree in every bit do", "[.][matrix][bits]") {
  check_twins(equal_twins());
}
TEST_CASE("every head gives the run of one process, float64", "[.][matrix][tasks]") {
  check_points(head_points());
}
TEST_CASE("every grid of ranks gives the run of one process, float64", "[.][matrix][grid]") {
  check_points(grid_points());
}
TEST_CASE("traced modules give the run of one process with every schedule and every choice of memory, float64",
          "[.][matrix][traced]") {
  check_points(traced_choice_points());
}
TEST_CASE("every schedule with every choice of memory gives the run of one process, float64", "[.][matrix][choices]") {
  check_points(choice_points());
}

TEST_CASE("every grid with every sharding in half precision is as near to fp32 as one process is",
          "[.][matrix][half]") {
  check_half(half_points());
}

// All points, for the numbers in the document: SHARDLINE_WRITE_DOCS=1 parity_tests "[docs]"
TEST_CASE("docs/parity.md", "[.][docs]") {
  const std::string text = markdown({.matrix = check_points(matrix_points()),
                                     .fp32 = check_points(fp32_points()),
                                     .half = check_half(half_points()),
                                     .bits = check_twins(equal_twins()),
                                     .faults = check_faults(),
                                     .half_faults = check_half_faults()});
  if (std::getenv("SHARDLINE_WRITE_DOCS")) std::ofstream(SHARDLINE_PARITY_DOCS) << text;
}

}  // namespace shardline::parity::matrix_test
