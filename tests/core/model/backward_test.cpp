#include "core/model/backward.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include "core/error.h"

#include "tests/catch.h"

namespace shardline::backward_test {

TEST_CASE("the gradients that an op computes flow through torch's graph") {
  const auto a = at::ones({2}).requires_grad_(true), b = at::ones({2}).requires_grad_(true);
  const auto doubled = a * 2;
  at::Tensor y;
  {
    at::NoGradGuard no_grad;
    y = doubled + 3 * b;
  }
  y = with_backward(y, {doubled, b}, {}, "Sum", [](const at::Tensor& dy, const SavedTensors&) {
    CHECK_FALSE(at::GradMode::is_enabled());
    return std::vector<at::Tensor>{dy, dy * 3};
  });
  torch::autograd::backward({y * 5}, {at::ones({2})});
  CHECK(at::equal(a.grad(), at::ones({2}) * 10));
  CHECK(at::equal(b.grad(), at::ones({2}) * 15));
}

TEST_CASE("the backward pass reaches an op without inputs exactly once and frees what it holds") {
  const auto held = std::make_shared<int>(0);
  const auto y = with_backward(at::ones({2}), {}, {}, "Source", [held](const at::Tensor&, const SavedTensors&) {
    ++*held;
    return std::vector<at::Tensor>{};
  });
  CHECK(held.use_count() == 2);
  torch::autograd::backward({y}, {at::ones({2})}, /*retain_graph=*/true);
  CHECK(*held == 1);
  CHECK(held.use_count() == 1);
  CHECK_THROWS_WITH(torch::autograd::backward({y}, {at::ones({2})}), Catch::Contains("Source was run backward twice"));
}

TEST_CASE("without grad mode no graph is built") {
  at::NoGradGuard no_grad;
  const auto held = std::make_shared<int>(0);
  const auto x = at::ones({2});
  const auto y = with_backward(x, {}, {x}, "None",
                               [held](const at::Tensor&, const SavedTensors&) { return std::vector<at::Tensor>{}; });
  CHECK(y.is_same(x));
  CHECK_FALSE(y.requires_grad());
  CHECK(held.use_count() == 1);
}

TEST_CASE("the output of an op is a separate tensor, even if it is a view") {
  const auto kept = at::ones({2, 2});
  const auto y = with_backward(kept[0], {}, {}, "View",
                               [](const at::Tensor&, const SavedTensors&) { return std::vector<at::Tensor>{}; });
  CHECK(y.requires_grad());
  CHECK_FALSE(kept.requires_grad());
  CHECK_FALSE(y.is_view());
}

TEST_CASE("the graph lists the tensors that its ops have saved, each op once") {
  const auto x = at::ones({2}).requires_grad_(true), a = at::ones({3}), b = at::ones({4});
  const void* given = nullptr;
  const auto one =
      with_backward(at::ones({2}), {x}, {a, b}, "One", [&](const at::Tensor& dy, const SavedTensors& saved) {
        given = saved[1].unsafeGetTensorImpl();
        return std::vector<at::Tensor>{dy};
      });
  const auto two = with_backward(at::ones({2}), {one, one}, {a}, "Two", [](const at::Tensor& dy, const SavedTensors&) {
    return std::vector<at::Tensor>{dy, dy};
  });
  const std::vector<torch::autograd::Edge> outputs = {torch::autograd::impl::gradient_edge(two)};
  const SavedTensors saved = saved_in_graph(outputs);
  REQUIRE(saved.size() == 3);
  CHECK(saved[0].is_alias_of(a));
  CHECK(saved[2].is_alias_of(b));
  torch::autograd::backward({two}, {at::ones({2})}, /*retain_graph=*/true);
  CHECK(given == saved[2].unsafeGetTensorImpl());
  CHECK(saved_in_graph(outputs).empty());
  CHECK(saved_in_graph({}).empty());
}

}  // namespace shardline::backward_test
