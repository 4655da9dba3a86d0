#include "models/program/ops/own_operators.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function.h>

#include "core/error.h"
#include "models/graph/autocast_mode.h"
#include "tests/models/program/ops/compared_ops.h"

#include "tests/catch.h"

namespace shardline::own_operators_test {
namespace {

using namespace compared_ops;
using c10::IValue;

}  // namespace

TEST_CASE("products with weights and their gradients equal those of ATen", "[own_ops]") {
  const at::Tensor x = numbers({2, 3, 5}, 1), w = numbers({4, 5}, 2), b = numbers({4}, 3);
  check_same("aten::linear", {x, w, b}, {0, 1, 2});
  check_same("aten::linear", {x, w, IValue()}, {0, 1});
  check_same("aten::linear", {x, w, b}, {1});     // an input that needs no gradient
  check_same("aten::linear", {x, w, b}, {0, 2});  // a frozen weight
  check_same("aten::linear", {x, w, b}, {});
  check_same("aten::linear", {x.transpose(0, 1), w, b}, {1, 2});
  check_same("aten::linear", {x, numbers({5, 4}, 2).t(), b}, {0});
  const at::Tensor rows = numbers({6, 5}, 1), turned = numbers({5, 4}, 2);
  check_same("aten::addmm", {b, rows, turned, 1, 1}, {0, 1, 2});
  check_same("aten::mm", {rows, turned}, {0, 1});
  check_same("aten::matmul", {x, turned}, {0, 1});
  check_same("aten::linear", {x.to(at::kFloat), w.to(at::kFloat), b.to(at::kFloat)}, {0, 1, 2}, 1e-5);
}

TEST_CASE("the gradient of a transposed parameter is added to that of the parameter", "[own_ops]") {
  const at::Tensor rows = numbers({6, 5}, 1), w = numbers({4, 5}, 2), dy = numbers({6, 4}, 5);
  const at::Tensor leaf = w.clone().requires_grad_(true);
  leaf.mutable_grad() = at::ones_like(w);
  const void* const place = leaf.grad().data_ptr();
  torch::jit::Stack stack = {rows, leaf.t()};
  REQUIRE(run_own("aten::mm", stack));
  const at::Tensor y = stack[0].toTensor();
  CHECK(difference(y.detach(), rows.matmul(w.t())) < 1e-14);
  for (const auto& edge : y.grad_fn()->next_edges()) CHECK_FALSE(edge.is_valid());  // autograd makes no gradient
  backward_on_this_thread({torch::autograd::impl::gradient_edge(y)}, {dy});
  CHECK(leaf.grad().data_ptr() == place);
  CHECK(difference(leaf.grad(), dy.t().matmul(rows) + 1) < 1e-14);
  // A parameter stored by columns whose linear takes rows, a part of a parameter, and a transpose that needs no
  // gradient.
  for (const at::Tensor& given :
       {numbers({5, 4}, 2).requires_grad_(true).t(), leaf.narrow(0, 0, 3), leaf.detach().t().t()}) {
    torch::jit::Stack called = {rows, given, IValue()};
    REQUIRE(run_own("aten::linear", called));
    CHECK(difference(called[0].toTensor().detach(), rows.matmul(given.detach().t())) < 1e-14);
  }
}

TEST_CASE("the rows of a group are multiplied with the group's matrix", "[own_ops]") {
  const char* const name = "aten::_grouped_mm";
  const at::Tensor x = numbers({6, 5}, 1), w = numbers({3, 4, 5}, 2).transpose(1, 2);
  const at::Tensor ends = at::tensor({2, 2, 5}, at::kInt);  // the second group is empty, and the last row in none
  const auto expected = [](torch::jit::Stack& stack) {
    const at::Tensor rows = stack[0].toTensor(), of = stack[1].toTensor();
    stack = {at::cat({rows.narrow(0, 0, 2).mm(of.select(0, 0)), rows.narrow(0, 2, 3).mm(of.select(0, 2)),
                      at::zeros({1, 4}, rows.options())})};
  };
  const torch::jit::Stack arguments = {x, w, ends, IValue(), IValue()};
  for (const bool has_sums : {false, true}) {
    const Computed own = computed([&](auto& stack) { REQUIRE(run_own(name, stack)); }, arguments, {0, 1}, has_sums);
    const Computed exact = computed(expected, arguments, {0, 1}, has_sums);
    CHECK(difference(own.result, exact.result) < 1e-14);
    for (size_t i = 0; i < 2; ++i) CHECK(difference(own.gradients[i], exact.gradients[i]) < 1e-14);
  }
  check_left(name, {x, w.select(0, 0), ends, IValue(), IValue()});
  check_left(name, {x, w, at::tensor({2, 6}, at::kInt), IValue(), IValue()});
  check_left(name, {x, w, IValue(), IValue(), IValue()});
  check_left(name, {x, w, ends, numbers({3, 4}, 3), IValue()});
}

TEST_CASE("other kinds of products are left to ATen", "[own_ops]") {
  const at::Tensor x = numbers({2, 3, 5}, 1), w = numbers({4, 5}, 2), b = numbers({4}, 3);
  check_left("aten::linear", {x.select(0, 0).select(0, 0), w, b});
  check_left("aten::linear", {x, w.to(at::kFloat), b});
  check_left("aten::linear", {x.narrow(0, 0, 0), w, b});
  check_left("aten::linear", {x, w.select(0, 0), IValue()});
  const at::Tensor rows = numbers({6, 5}, 1), turned = numbers({5, 4}, 2);
  check_left("aten::addmm", {b, rows, turned, 1, 2});
  check_left("aten::addmm", {b, rows, turned, 0, 1});
  check_left("aten::addmm", {numbers({6, 4}, 3), rows, turned, 1, 1});
  check_left("aten::addmm", {numbers({1}, 3), rows, turned, 1, 1});
  check_left("aten::matmul", {x, numbers({2, 5, 4}, 2)});
  check_left("aten::matmul", {rows, turned.select(1, 0)});
  CHECK(own_operator("aten::linear", "out") == nullptr);
  CHECK(own_operator("aten::add", "") == nullptr);
}

TEST_CASE("under autocast, products round their factors, and gradients of weights are not rounded", "[own_ops]") {
  const at::Tensor x = numbers({3, 40}, 1, at::kFloat), w = numbers({7, 40}, 2, at::kFloat),
                   b = numbers({7}, 3, at::kFloat);
  const auto half = [](const at::Tensor& t) { return t.to(at::kBFloat16).to(at::kDouble); };
  const Computed own = computed(
      [&](auto& stack) {
        const AutocastMode autocast(at::kCPU, at::kBFloat16);
        REQUIRE(run_own("aten::linear", stack));
      },
      {x, w, b}, {0, 1, 2}, true);
  CHECK(own.result.scalar_type() == at::kBFloat16);
  const at::Tensor exact = half(x).matmul(half(w).t()) + half(b);
  CHECK(difference(own.result.to(at::kDouble), exact) < 1.0 / 256);
  const at::Tensor dy = half(numbers({3, 7}, 5));
  CHECK(own.gradients[1].scalar_type() == at::kFloat);
  CHECK(difference(own.gradients[1].to(at::kDouble), dy.t().matmul(half(x)) + 1) < 1e-6);
  CHECK(difference(own.gradients[2].to(at::kDouble), dy.sum(0) + 1) < 1e-6);
  CHECK(difference(own.gradients[0].to(at::kDouble), dy.matmul(half(w)) + 1) < 1.0 / 128);
  const AutocastMode autocast(at::kCPU, at::kBFloat16);
  check_left("aten::linear", {x.to(at::kDouble), w.to(at::kDouble), IValue()});  // which autocast does not round
}

TEST_CASE("norms, GELU and their gradients equal those of ATen", "[own_ops]") {
  const at::Tensor x = numbers({2, 3, 6}, 1), w = numbers({6}, 2), b = numbers({6}, 3);
  const IValue last = c10::List<int64_t>({6});
  check_same("aten::layer_norm", {x, last, w, b, 1e-5, false}, {0, 2, 3});
  check_same("aten::layer_norm", {x, last, w, b, 1e-3, false}, {2, 3});
  check_same("aten::layer_norm", {x, last, w, b, 1e-5, false}, {0});
  check_left("aten::layer_norm", {x, last, w, IValue(), 1e-5, false});
  check_left("aten::layer_norm", {x, c10::List<int64_t>({3, 6}), numbers({3, 6}, 2), numbers({3, 6}, 3), 1e-5, false});
  check_left("aten::layer_norm", {x.transpose(0, 1), last, w, b, 1e-5, false});
  for (const char* approximate : {"none", "tanh"}) {
    check_same("aten::gelu", {x * 4, approximate}, {0});
    check_same("aten::gelu", {x.to(at::kFloat), approximate}, {0}, 5e-6);
    check_left("aten::gelu", {x.transpose(0, 2), approximate});
  }
}

TEST_CASE("rows of a table add their gradients to its own", "[own_ops]") {
  const at::Tensor table = numbers({5, 3}, 1), ids = at::tensor({1, 4, 1, 0, 2, 2}, at::kLong).view({2, 3});
  check_same("aten::embedding", {table, ids, -1, false, false}, {0});
  check_same("aten::embedding", {table, ids, 2, false, false}, {0});
  check_left("aten::embedding", {table, ids, -1, false, false});  // nothing to add
  const at::Tensor trained = table.clone().requires_grad_(true);
  check_left("aten::embedding", {trained, ids, -1, true, false});
  check_left("aten::embedding", {trained, ids.to(at::kInt), -1, false, false});
}

TEST_CASE("a value that a backward pass needs must not change before it", "[own_ops]") {
  const at::Tensor x = numbers({2, 6}, 1).requires_grad_(true);
  const at::Tensor inner = x * 2;
  torch::jit::Stack stack = {inner, "none"};
  REQUIRE(run_own("aten::gelu", stack));
  {
    const at::NoGradGuard no_grad;
    inner.add_(1);
  }
  const at::Tensor y = stack[0].toTensor();
  CHECK_THROWS_WITH(backward_on_this_thread({torch::autograd::impl::gradient_edge(y)}, {at::ones_like(y.detach())}),
                    Catch::Matchers::Contains("changes a tensor of sizes [2, 6] in place"));
}

}  // namespace shardline::own_operators_test
