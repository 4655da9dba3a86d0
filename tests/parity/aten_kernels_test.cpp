// Runs on CPUs with the operators for devices without our kernels: they must give the same numbers as the CPU's own
// kernels.
#include "tensor_parallel/kernels/kernels.h"
#include "tensor_parallel/products/products.h"
#include "tests/parity/run.h"

#include "tests/catch.h"

namespace shardline::parity::aten_kernels_test {
namespace {

struct AtenKernels {
  AtenKernels() {
    use_kernels(KernelLibrary::aten);
    use_products(ProductLibrary::aten);
  }
  ~AtenKernels() {
    use_kernels(KernelLibrary::automatic);
    use_products(ProductLibrary::automatic);
  }
};

void check(const std::vector<Point>& points) {
  for (const Point& point : points) {
    CAPTURE(point.name());
    const Outcome& own = reference(point);
    const AtenKernels forced;
    const Difference difference = compare(run_point(point), own, limits_of(point));
    CAPTURE(difference.gradient, difference.norm, difference.loss, difference.change, difference.worst_gradient);
    CHECK(difference.exceeds(limits_of(point)) == "");
  }
}

}  // namespace

TEST_CASE("runs with ATen's operators agree with runs with ours", "[aten]") {
  check({{.dropout = true, .shape = "2 tokens"},
         {.p = 2, .t = 2, .microbatches = 2, .model = "gptj"},
         {.d = 2, .t = 3, .optimize = "memory", .short_batch = true, .sharding = "ZeRO-3"}});
}

TEST_CASE("runs with ATen's operators agree on every kind of layout", "[.][aten][slow]") {
  std::vector<Point> points;
  for (const char* pipeline : {"simple", "interleaved_1f1b v2", "zb_h2", "zbv", "dualpipev"})
    points.push_back({.p = 2, .t = 2, .pipeline = pipeline, .microbatches = 4, .dropout = true});
  for (const char* checkpointing : {"each", "selective"})
    points.push_back({.d = 2,
                      .p = 2,
                      .microbatches = 2,
                      .dropout = true,
                      .checkpointing = checkpointing,
                      .offload = "all",
                      .model = "gptj"});
  points.push_back({.t = 4, .dropout = true, .shape = "1 head"});
  points.push_back({.dtype = "float32", .dropout = true});
  check(points);
}

}  // namespace shardline::parity::aten_kernels_test
