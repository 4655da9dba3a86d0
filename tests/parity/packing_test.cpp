// Documents that are packed into samples give the same losses and gradients as separate samples.
#include <string>
#include <vector>

#include "tests/parity/run.h"

#include "tests/catch.h"

namespace shardline::parity::packing_test {
namespace {

Point apart(Point point) {
  point.packing = "apart";
  return point.reference();
}

void check_apart(Point point) {
  point.packing = "packed";
  point.steps = kFewSteps;
  const Difference d = compare(run_point(point), reference(apart(point)), limits_of(point));
  INFO(point.name());
  INFO("gradient " << d.gradient << " (" << d.worst_gradient << "), norm " << d.norm << ", loss " << d.loss
                   << ", change " << d.change);
  CHECK(d.exceeds(limits_of(point)) == "");
}

}  // namespace

TEST_CASE("packed documents give the losses and gradients of the same documents as separate samples, float64",
          "[parity][packing]") {
  for (const char* model : {"gpt2", "gptj", "gpt_neo"})
    for (const char* task : {"causal-lm", "completions"}) {
      const Point one{.ignored = true, .model = model, .task = task};
      std::vector<Point> layouts = {one};
      for (const char* optimize : {"speed", "memory"}) {
        Point point = one;
        point.p = 2;
        point.t = 2;
        point.optimize = optimize;
        point.checkpointing = "each";
        point.microbatches = 3;
        layouts.push_back(point);
      }
      Point replicas = one;
      replicas.d = 2;
      replicas.t = 3;
      replicas.optimize = "memory";
      replicas.microbatches = 2;
      replicas.short_batch = true;
      layouts.push_back(replicas);
      for (const Point& point : layouts) check_apart(point);
    }
}

TEST_CASE("ignoring the ends of packed documents changes gradients", "[parity][packing]") {
  const Point packed{.packing = "packed", .steps = 1};
  Point joined = packed;
  joined.packing = "off";
  const Difference d = compare(run_point(packed), run_point(joined), limits_of(packed));
  CHECK(d.gradient > 1e-3);
}

}  // namespace shardline::parity::packing_test
