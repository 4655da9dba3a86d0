#include "models/program/ops/own_op.h"

#include "models/graph/pass_trace.h"
#include "models/program/ops/attention_op.h"
#include "models/program/ops/cross_entropy_op.h"
#include "tensor_parallel/products/products.h"
#include "tests/models/program/ops/compared_ops.h"

#include "tests/catch.h"

namespace shardline::own_op_test {
namespace {

using namespace compared_ops;

constexpr int64_t kRows = 6, kWidth = 4, kInner = 10;

at::Tensor called(const char* name, torch::jit::Stack arguments, bool own) {
  if (own)
    REQUIRE(run_own(name, arguments));
  else
    run_aten(name, arguments);
  return arguments[0].toTensor();
}

}  // namespace

TEST_CASE("a trace counts what shardline's ops keep, and their products", "[own_ops]") {
  const auto library = GENERATE(ProductLibrary::automatic, ProductLibrary::aten);
  use_products(library);
  const at::Tensor x = numbers({kRows, kWidth}, 1, at::kFloat).requires_grad_(true);
  const at::Tensor up = numbers({kInner, kWidth}, 2, at::kFloat).requires_grad_(true);
  const at::Tensor down = numbers({kWidth, kInner}, 3, at::kFloat).requires_grad_(true);
  const auto traced = [&](bool own) {
    return trace_pass({x, up, down}, [&] {
      const at::Tensor inner = called("aten::linear", {x, up, c10::IValue()}, own);
      return called("aten::linear", {called("aten::gelu", {inner, "tanh"}, own), down, c10::IValue()}, own);
    });
  };
  const PassTrace ours = traced(true), aten = traced(false);
  CHECK(ours.kept_bytes == 2 * kRows * kInner * 4);  // the input of the GELU, and that of the second product
  CHECK(ours.kept_bytes == aten.kept_bytes);
  const auto sizes = [](const PassTrace& trace) {
    std::vector<std::vector<int64_t>> all;
    for (const auto& product : trace.products) all.push_back({product.m, product.n, product.k});
    return all;
  };
  CHECK(sizes(ours) == std::vector<std::vector<int64_t>>{{kRows, kInner, kWidth}, {kRows, kWidth, kInner}});
  CHECK(sizes(ours) == sizes(aten));
  use_products(ProductLibrary::automatic);
}

TEST_CASE("a trace counts attention and cross entropy as ATen's", "[own_ops]") {
  constexpr int64_t kHeads = 2, kLength = 8, kFeatures = 4;
  const at::Tensor q = numbers({1, kHeads, kLength, kFeatures}, 1, at::kFloat).requires_grad_(true);
  const auto attended = [&](bool own) {
    return trace_pass({q}, [&] {
      torch::jit::Stack stack = {q, q, q, c10::IValue(), 0.0, true, c10::IValue(), false};
      if (own)
        stack = {own_attention(stack, {})};
      else
        run_aten("aten::scaled_dot_product_attention", stack);
      return stack[0].toTensor();
    });
  };
  const PassTrace ours = attended(true), aten = attended(false);
  CHECK(ours.kept_bytes == kHeads * kLength * (kFeatures + 1) * 4);  // the result, and the sums of its softmax
  REQUIRE(ours.products.size() == 2);
  REQUIRE(aten.products.size() == 2);
  for (int i = 0; i < 2; ++i) CHECK(ours.products[i].flops() == aten.products[i].flops());

  const at::Tensor x = numbers({kLength, 5}, 1, at::kFloat).requires_grad_(true);
  const at::Tensor target = at::arange(kLength).remainder(5);
  const PassTrace loss = trace_pass({x, target}, [&] { return own_cross_entropy_sum(x * 1, target, -1); });
  CHECK(loss.kept_bytes == kLength * (5 * 4 + 8 + 4));  // logits, labels, and sums of exponentials
}

}  // namespace shardline::own_op_test
