#include "tests/parity/matrix.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>

#include "tests/parity/axes.h"
#include "tests/parity/traced_models.h"

namespace shardline::parity {
namespace {

constexpr uint64_t kSeed = 2024;

// Sizes that no degree divides, on at least two ranks of every kind.
std::vector<Axis> deep_axes() {
  auto axes = restricted(matrix_axes(), "D", {"2", "3"});
  axes = restricted(axes, "P", {"2", "3", "4"});
  axes = restricted(axes, "T", {"2", "3", "4"});
  axes = restricted(axes, "dropout", {"0.1"});
  axes = restricted(axes, "last batch", {"short"});
  return restricted(axes, "shape", {"6 heads", "3 heads", "1 head"});
}

}  // namespace

const std::vector<Point>& pair_points() {
  static const auto points = covering_array(matrix_axes(), kSeed);
  return points;
}

std::vector<Point> single_points() {
  std::vector<Point> points;
  for (const auto& axis : matrix_axes())
    for (size_t value = 1; value < axis.values.size(); ++value) {
      Point point{.microbatches = 2};
      if (axis.name == "optimize") point.t = 2;
      if (axis.name == "units") point.t = 3, point.optimize = "memory";
      if (axis.name == "pipeline" || axis.name == "active_microbatches") point.p = 3, point.microbatches = 4;
      if (axis.name == "placement") point.d = point.p = point.t = 2;
      if (axis.name == "sharding") point.d = 4;
      axis.set(point, value);
      if (!feasible(point)) point.p = 2;  // three chunks per stage
      points.push_back(with_batch(point));
    }
  // A single token on a rank, and ranks without tokens; ranks without heads, words and inner features.
  for (const char* shape : {"2 tokens", "1 head"})
    for (const char* optimize : {"speed", "memory"})
      points.push_back({.t = 4, .optimize = optimize, .dropout = true, .shape = shape});
  // Whole units on every T, with replicas and stages, sizes that are not divisible, and microbatches without tokens.
  for (const char* optimize : {"speed", "memory"})
    for (const char* units : {"whole", "mixed", "embedding whole"})
      for (const int t : {2, 3, 4})
        points.push_back(with_batch({.d = 2,
                                     .p = 2,
                                     .t = t,
                                     .optimize = optimize,
                                     .pipeline = t == 3 ? "zb_h1" : "interleaved",
                                     .microbatches = 2,
                                     .dropout = true,
                                     .tied = t != 4,
                                     .short_batch = t == 3,
                                     .units = units,
                                     .shape = "3 heads"}));
  points.push_back(with_batch({.d = 3, .p = 2, .t = 3, .optimize = "memory", .microbatches = 2, .dropout = true}));
  points.push_back(with_batch(
      {.d = 2, .p = 3, .t = 4, .optimize = "memory", .microbatches = 3, .dropout = true, .short_batch = true}));
  return points;
}

const std::vector<Point>& deep_points() {
  static const auto points = covering_array(deep_axes(), kSeed);
  return points;
}

std::vector<Point> grid_points() {
  return combinations(matrix_axes(), {"D", "P", "T"}, kSeed);
}

std::vector<Point> choice_points() {
  // With a single stage, there is nothing to schedule.
  return combinations(restricted(matrix_axes(), "P", {"2", "3", "4"}), {"pipeline", "checkpointing", "offload"}, kSeed);
}

std::vector<Point> optimizer_points() {
  const auto& deep = deep_points();
  std::vector<Point> points;
  for (const char* optim : {"sgd", "adam", "adafactor"})
    for (size_t i = 0; i < (std::string(optim) == "adafactor" ? 8u : 3u); ++i) {
      points.push_back(deep[(points.size() * 5) % deep.size()]);
      points.back().optim = optim;
    }
  return points;
}

const std::vector<Point>& task_points() {
  static const auto points = covering_array(task_axes(), kSeed);
  return points;
}

std::vector<Point> head_points() {
  std::vector<Point> points;
  for (const char* axis : {"T", "P", "sharding"})
    for (const Point& point : combinations(task_axes(), {"model", "task", axis}, kSeed)) points.push_back(point);
  return points;
}

std::vector<Point> some_task_points() {
  std::vector<Point> points, all = task_points();
  for (const Point& point : head_points()) all.push_back(point);
  for (const int world : {2, 4, 8}) {
    std::set<std::string> seen;
    for (const Point& point : with_world(all, world)) {
      const bool is_new_task = seen.insert(point.task).second, is_new_padding = seen.insert(point.padding).second;
      if (is_new_task || is_new_padding) points.push_back(point);
    }
  }
  return points;
}

std::vector<Point> matrix_points() {
  std::vector<Point> points = pair_points();
  for (const auto& more : {single_points(), deep_points(), grid_points(), choice_points(), optimizer_points(),
                           task_points(), head_points()})
    points.insert(points.end(), more.begin(), more.end());
  return points;
}

const std::vector<Point>& traced_points() {
  static const auto points = [] {
    auto made = covering_array(traced_axes(), kSeed);
    for (auto& point : made) point.steps = kFewSteps;
    return made;
  }();
  return points;
}

std::vector<Point> traced_task_points() {
  std::vector<Point> points;
  for (const auto& model : traced_encoders())
    for (const Point& layout :
         {Point{.t = 2, .microbatches = 3}, Point{.p = 3, .pipeline = "zb_h1", .microbatches = 2},
          Point{
              .d = 2, .p = 2, .t = 3, .microbatches = 2, .dropout = true, .short_batch = true, .sharding = "ZeRO-2"}}) {
      points.push_back(layout);
      points.back().model = model;
      points.back().task = task_of_traced(model);
      points.back().steps = kFewSteps;
      points.back() = with_batch(points.back());
    }
  return points;
}

std::vector<Point> traced_choice_points() {
  const auto axes = restricted(traced_axes(), "P", {"2", "3", "4"});
  auto points = combinations(axes, {"pipeline", "checkpointing", "model"}, kSeed);
  for (auto& point : points) point.steps = kFewSteps;
  return points;
}

std::vector<Point> fp32_points() {
  std::vector<Point> points;
  const auto add_every = [&](const std::vector<Point>& all, size_t stride) {
    for (size_t i = 0; i < all.size(); i += stride) {
      points.push_back(all[i]);
      points.back().dtype = "float32";
    }
  };
  add_every(pair_points(), 6);
  add_every(deep_points(), 8);
  for (const int world : {2, 4, 8})  // these run on real ranks, too
    if (with_world(points, world).empty()) add_every({with_world(pair_points(), world).at(0)}, 1);
  return points;
}

std::vector<Point> device_points() {
  std::vector<Point> points;
  for (const char* pipeline : {"simple", "interleaved", "interleaved_1f1b v2", "zb_h1", "zb_h2", "zbv", "dualpipev"}) {
    Point point{.p = 2, .pipeline = pipeline, .dtype = "float32", .microbatches = 4};
    point.offload = points.size() % 2 == 0 ? "all" : "off";
    points.push_back(point);
  }
  for (const char* sharding : {"ZeRO-1", "ZeRO-2", "ZeRO-3", "ZeRO-3 weights"}) {
    Point point{.d = 2, .dtype = "float32", .microbatches = 2, .sharding = sharding};
    point.states_on_host = point.sharding == "ZeRO-2" || point.sharding == "ZeRO-3";
    points.push_back(point);
  }
  points.push_back(
      {.t = 3, .optimize = "memory", .dtype = "float32", .microbatches = 2, .dropout = true, .shape = "2 tokens"});
  for (const char* model : {"gptj", "gpt_neo"})
    points.push_back({.p = 2, .t = 2, .dtype = "float32", .microbatches = 2, .model = model});
  points.push_back({.d = 2,
                    .p = 2,
                    .t = 2,
                    .optimize = "memory",
                    .dtype = "float32",
                    .microbatches = 2,
                    .short_batch = true,
                    .sharding = "ZeRO-3"});
  return points;
}

std::vector<Point> half_points() {
  auto axes = matrix_axes();
  axes = restricted(axes, "D", {"1", "2", "4"});
  axes = restricted(axes, "microbatches", {"1", "2", "3"});
  axes = restricted(axes, "placement", {"DPT"});
  axes = restricted(axes, "accumulation", {"1"});
  axes = restricted(axes, "shape", {"6 heads", "3 heads"});
  axes = restricted(axes, "units", {"split", "mixed"});
  std::vector<Point> points;
  const std::vector<std::string> types = {"bf16", "fp16", "bf16 fp32 residuals", "fp16 scaled scores"};
  for (const Point& point : combinations(axes, {"D", "P", "T", "sharding"}, kSeed)) {
    points.push_back(point);
    points.back().dtype = types[points.size() % types.size()];
  }
  return points;
}

std::vector<Point> with_world(const std::vector<Point>& points, int world) {
  std::vector<Point> those;
  std::copy_if(points.begin(), points.end(), std::back_inserter(those),
               [&](const Point& point) { return point.world() == world; });
  return those;
}

Difference measure(const Point& point, const Tampering& tampering) {
  return compare(run_point(point, tampering), reference(point), limits_of(point));
}

}  // namespace shardline::parity
