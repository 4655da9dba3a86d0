#include "engine/profile/op_recorder.h"

#include <ATen/ops/add.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include <thread>

#include "tensor_parallel/products/products.h"

#include "tests/catch.h"

namespace shardline::op_recorder_test {
namespace {

using Shapes = std::vector<std::vector<int64_t>>;

std::vector<OpRecorder::Event> ops_of(const std::function<void()>& run) {
  const OpRecorder recorder;
  run();
  return recorder.events();
}

}  // namespace

TEST_CASE("ops are recorded with their shapes, but not the ops that they call") {
  const auto x = at::ones({6, 4}), w = at::ones({5, 4}), dy = at::ones({6, 5});
  auto y = at::ones({6, 5}), dx = at::ones({6, 4}), dw = at::ones({5, 4});
  for (const auto products : {ProductLibrary::aten, ProductLibrary::automatic}) {
    use_products(products);
    const auto events = ops_of([&] {
      linear_forward_out(y, x, w, {});
      linear_input_gradient_out(dx, dy, w, false);
      add_weight_gradient(dw, dy, x);
      y.add_(y);
    });
    REQUIRE(events.size() == 4);
    CHECK(events[0].name == "shardline::linear_forward");
    CHECK(events[0].shapes == Shapes{{6, 4}, {5, 4}});
    CHECK(events[1].name == "shardline::linear_input_gradient");
    CHECK(events[2].name == "shardline::add_weight_gradient");
    CHECK(events[3].name == "aten::add_");
    CHECK(events[3].shapes == Shapes{{6, 5}, {6, 5}, {}});
    for (size_t i = 0; i < 3; ++i) CHECK(flops_of(events[i]) == 2 * 6 * 5 * 4);
    CHECK(flops_of(events[3]) == 0);
    for (size_t i = 1; i < 4; ++i) CHECK(events[i].seconds >= events[i - 1].seconds);
  }
}

TEST_CASE("a recorder records its own thread during its lifetime") {
  const auto x = at::ones({3, 3});
  const auto events = ops_of([&] { std::thread([&] { at::mm(x, x); }).join(); });
  CHECK(events.empty());
  at::mm(x, x);
  CHECK(ops_of([&] { at::mm(x, x); }).size() == 1);
}

TEST_CASE("FLOPs are computed from shapes") {
  CHECK(flops_of({0, "aten::mm", {{2, 3}, {3, 5}}}) == 60);
  CHECK(flops_of({0, "aten::addmm", {{5}, {2, 3}, {3, 5}, {}, {}}}) == 60);
  CHECK(flops_of({0, "aten::bmm", {{7, 2, 3}, {7, 3, 5}}}) == 420);
  const Shapes heads(3, {2, 3, 8, 4});  // the causal half of two, and of five products
  CHECK(flops_of({0, "shardline::attention_forward", heads}) == 2 * (2 * 3 * 8 * 8 * 4));
  CHECK(flops_of({0, "shardline::attention_backward", heads}) == 5 * (2 * 3 * 8 * 8 * 4));
}

}  // namespace shardline::op_recorder_test
