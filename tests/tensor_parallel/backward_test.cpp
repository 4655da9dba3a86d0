#include "tensor_parallel/backward.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/error.h"

#include "tests/catch.h"

namespace shardline {

TEST_CASE("an op's own gradients flow through torch's graph") {
  const auto a = at::ones({2}).requires_grad_(true), b = at::ones({2}).requires_grad_(true);
  const auto doubled = a * 2;
  at::Tensor y;
  {
    at::NoGradGuard no_grad;
    y = doubled + 3 * b;
  }
  y = with_backward(y, {doubled, b}, "Sum", [](const at::Tensor& dy) {
    CHECK_FALSE(at::GradMode::is_enabled());
    return std::vector<at::Tensor>{dy, dy * 3};
  });
  torch::autograd::backward({y * 5}, {at::ones({2})});
  CHECK(at::equal(a.grad(), at::ones({2}) * 10));
  CHECK(at::equal(b.grad(), at::ones({2}) * 15));
}

TEST_CASE("an op without inputs is reached too, once, and frees what it holds") {
  const auto held = std::make_shared<int>(0);
  const auto y = with_backward(at::ones({2}), {}, "Source", [held](const at::Tensor&) {
    ++*held;
    return std::vector<at::Tensor>{};
  });
  CHECK(held.use_count() == 2);
  torch::autograd::backward({y}, {at::ones({2})}, /*retain_graph=*/true);
  CHECK(*held == 1);
  CHECK(held.use_count() == 1);
  CHECK_THROWS_WITH(torch::autograd::backward({y}, {at::ones({2})}), Catch::Contains("Source was run backward twice"));
}

TEST_CASE("without grad mode there is no graph") {
  at::NoGradGuard no_grad;
  const auto held = std::make_shared<int>(0);
  const auto x = at::ones({2});
  const auto y = with_backward(x, {}, "None", [held](const at::Tensor&) { return std::vector<at::Tensor>{}; });
  CHECK(y.is_same(x));
  CHECK_FALSE(y.requires_grad());
  CHECK(held.use_count() == 1);
}

TEST_CASE("the output of an op is a tensor of its own, also where it is a view") {
  const auto kept = at::ones({2, 2});
  const auto y = with_backward(kept[0], {}, "View", [](const at::Tensor&) { return std::vector<at::Tensor>{}; });
  CHECK(y.requires_grad());
  CHECK_FALSE(kept.requires_grad());
  CHECK_FALSE(y.is_view());
}

}  // namespace shardline
