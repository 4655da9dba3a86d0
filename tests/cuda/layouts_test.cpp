// Compares layouts whose ranks share one accelerator with one process on that accelerator, and this process with one on
// a CPU. Each point is printed, so an interrupted run shows how far it got. SHARDLINE_MOST_POINTS=N runs only the last
// N points of each list; it is meant for the fake accelerator, whose own tests run all points.
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>

#include "core/device/accelerator.h"
#include "core/error.h"
#include "tests/parity/half.h"
#include "tests/parity/matrix.h"
#include "tests/parity/run.h"

#include "tests/catch.h"

namespace shardline::layouts_test {
namespace {

using namespace parity;

std::vector<Point> chosen(const std::vector<Point>& points) {
  const char* most = std::getenv("SHARDLINE_MOST_POINTS");
  const auto count = std::min(std::ssize(points), most ? std::atol(most) : std::ssize(points));
  REQUIRE(count > 0);
  return {points.end() - count, points.end()};
}

Outcome run_on_accelerator(const Point& point) {
  return run_point(point, {}, shared_by_ranks(accelerator(0)));
}

// The devices compute exponentials and order products differently. A planted fault changes gradients by 1e-2 or more.
Limits between_devices(const Point& point) {
  Limits limits = limits_of(point);
  limits.gradient *= 10, limits.norm *= 10, limits.loss *= 10, limits.change *= 10;
  return limits;
}

std::string text_of(const Difference& d) {
  return cat("gradient ", d.gradient, " (", d.worst_gradient, "), norm ", d.norm, ", loss ", d.loss, ", change ",
             d.change, " (", d.worst_change, "), copies ", d.copies);
}

void expect_within(const std::string& what, const Difference& difference, const Limits& limits) {
  const std::string exceeded = difference.exceeds(limits);
  std::cout << what << ": " << text_of(difference) << (exceeded.empty() ? "" : " EXCEEDED: " + exceeded) << std::endl;
  INFO(what << ": " << text_of(difference));
  CHECK(exceeded == "");
}

void check(const std::vector<Point>& points) {
  std::map<std::string, Outcome> alone;
  for (const Point& point : chosen(points)) {
    const auto [one, is_new] = alone.try_emplace(point.reference_key());
    if (is_new) {
      one->second = run_on_accelerator(point.reference());
      expect_within("one process, " + point.reference_key() + ", from a CPU's",
                    compare(one->second, reference(point), between_devices(point)), between_devices(point));
    }
    expect_within(point.name(), compare(run_on_accelerator(point), one->second, limits_of(point)), limits_of(point));
  }
}

}  // namespace

TEST_CASE("one process on an accelerator trains as on a CPU, with all options", "[one]") {
  std::vector<Point> points;
  for (const char* model : {"gpt2", "gptj"})
    for (const char* checkpointing : {"none", "each", "selective"})
      points.push_back({.pipeline = "simple",  // leaves time to move activations to the host
                        .dtype = "float32",
                        .microbatches = 2,
                        .dropout = true,
                        .tied = points.size() % 2 == 0,
                        .checkpointing = checkpointing,
                        .offload = points.size() % 3 == 1 ? "all" : "off",
                        .states_on_host = points.size() % 3 == 2,
                        .model = model});
  check(points);
}

TEST_CASE("every schedule and sharding on one accelerator gives the run of one process", "[layouts]") {
  check(device_points());
}

TEST_CASE("every grid of up to two replicas, stages and tensor ranks gives the run of one process", "[grid]") {
  std::vector<Point> points;
  for (const int d : {1, 2})
    for (const int p : {1, 2})
      for (const int t : {1, 2})
        points.push_back({.d = d,
                          .p = p,
                          .t = t,
                          .optimize = points.size() % 2 == 0 ? "speed" : "memory",
                          .dtype = "float32",
                          .microbatches = 2,
                          .dropout = true});
  check(points);
}

TEST_CASE("half precision on an accelerator is as near to fp32 as on one CPU", "[half]") {
  std::vector<Point> points;
  for (const char* dtype : {"bf16", "fp16", "bf16 fp32 residuals"}) {
    points.push_back({.dtype = dtype, .microbatches = 2, .dropout = true});
    points.push_back({.p = 2, .t = 2, .dtype = dtype, .microbatches = 2, .model = "gptj"});
    points.push_back({.d = 2, .dtype = dtype, .microbatches = 2, .sharding = "ZeRO-2"});
  }
  for (const Point& point : chosen(points)) {
    Point in_fp32 = point;
    in_fp32.dtype = "float32";
    const HalfDistance one = half_distance(reference(point), reference(in_fp32)),
                       device = half_distance(run_on_accelerator(point), reference(in_fp32));
    const std::string text =
        cat(point.name(), ": gradient ", device.gradient, " (a CPU ", one.gradient, "), norm ", device.norm, " (",
            one.norm, "), loss ", device.loss, " (", one.loss, "), copies ", device.copies);
    std::cout << text << std::endl;
    INFO(text);
    CHECK(device.exceeds(one) == "");
  }
}

}  // namespace shardline::layouts_test
