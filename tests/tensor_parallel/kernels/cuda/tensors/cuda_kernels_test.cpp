// The table of CUDA kernels gives what our loops give on CPUs.
#include "tensor_parallel/kernels/cuda/cuda_kernels.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "tensor_parallel/kernels/row_kernels.h"
#include "tensor_parallel/products/products.h"

#include "tests/catch.h"

namespace shardline::cuda_kernels_test {
namespace {

// Our oneDNN cannot be loaded into a program with an address sanitizer.
const KernelTable& table() {
  use_products(ProductLibrary::aten);
  return cuda::kernel_table();
}

at::Tensor random(at::IntArrayRef sizes, at::ScalarType type) {
  return at::randn(sizes, at::kDouble).to(type);
}
at::Tensor sums(int64_t n, at::ScalarType type) {
  return at::zeros({n}, type == at::kDouble ? at::kDouble : at::kFloat);
}

// Half-precision results may be rounded to the other neighbour; `more`: what is computed from such results.
void check_close(const at::Tensor& actual, const at::Tensor& expected, double more = 1) {
  REQUIRE(actual.scalar_type() == expected.scalar_type());
  REQUIRE(actual.sizes() == expected.sizes());
  const double step = actual.scalar_type() == at::kBFloat16 ? 8e-3 : actual.scalar_type() == at::kHalf ? 1e-3 : 2e-5;
  CHECK(at::allclose(actual.to(at::kDouble), expected.to(at::kDouble), step * more, step * more));
}

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble};

DropoutRows dropout_rows() {
  return {.seed = 77,
          .op = 5,
          .step = 9,
          .probability = 0.2,
          .samples = at::tensor({8, 3}, at::kLong),
          .length = 3,
          .first_position = 4,
          .first_token = 1,
          .tokens = 6};
}

}  // namespace

TEST_CASE("CUDA kernels of rows equal the loops of CPUs") {
  for (const at::ScalarType type : kTypes)
    for (const at::ScalarType border : {type, at::kFloat}) {
      if (type == at::kDouble && border != type) continue;
      CAPTURE(type, border);
      const int64_t rows = 6, n = 20, valid = 5;
      const at::Tensor x = random({rows, n}, border), weight = random({n}, type), bias = random({n}, type),
                       dy = random({rows, n}, type), residual = random({rows, n}, border);
      const auto [y, mean, rstd] = table().layer_norm_forward(x, weight, bias, 1e-5);
      const auto [y2, mean2, rstd2] = layer_norm_forward(x, weight, bias, 1e-5);
      check_close(y, y2);
      check_close(mean, mean2);
      check_close(rstd, rstd2);
      const auto wide = mean.scalar_type();
      at::Tensor wg = sums(n, wide), bg = sums(n, wide), wg2 = sums(n, wide), bg2 = sums(n, wide);
      check_close(table().layer_norm_backward(dy, x, mean2, rstd2, weight, wg, bg, valid),
                  layer_norm_backward(dy, x, mean2, rstd2, weight, wg2, bg2, valid), 4);
      check_close(wg, wg2);
      check_close(bg, bg2);

      const auto [rms, rms_rstd] = table().rms_norm_forward(x, weight, 1e-5);
      const auto [rms2, rms_rstd2] = rms_norm_forward(x, weight, 1e-5);
      check_close(rms, rms2);
      check_close(rms_rstd, rms_rstd2);
      wg.zero_();
      wg2.zero_();
      check_close(table().rms_norm_backward(dy, x, rms_rstd2, weight, wg, valid),
                  rms_norm_backward(dy, x, rms_rstd2, weight, wg2, valid), 4);
      check_close(wg, wg2);

      const DropoutRows rows_of = dropout_rows();
      const at::Tensor branch = random({rows, n}, type);
      check_close(table().bias_dropout_add_forward(branch, bias, residual, rows_of),
                  bias_dropout_add_forward(branch, bias, residual, rows_of));
      check_close(table().bias_dropout_add_forward(branch, {}, {}, rows_of),
                  bias_dropout_add_forward(branch, {}, {}, rows_of));
      bg.zero_();
      bg2.zero_();
      check_close(table().bias_dropout_backward(residual, rows_of, bg, valid, type),
                  bias_dropout_backward(residual, rows_of, bg2, valid, type));
      check_close(bg, bg2);

      // Without dropout the gradient of the branch is the residual's, not a copy, if the types are the same.
      bg.zero_();
      bg2.zero_();
      const at::Tensor passed = table().bias_dropout_backward(residual, {}, bg, valid, type);
      check_close(passed, bias_dropout_backward(residual, {}, bg2, valid, type));
      check_close(bg, bg2);
      CHECK(passed.is_same(residual) == (type == border));

      const at::Tensor wide_rows = random({rows, n + 3}, type).narrow(1, 1, n);
      bg.zero_();
      bg2.zero_();
      table().add_column_sums(bg, wide_rows);
      add_row_sums(bg2, wide_rows);
      check_close(bg, bg2);

      for (const auto activation :
           {Activation::gelu, Activation::gelu_tanh, Activation::relu, Activation::silu, Activation::tanh}) {
        check_close(table().bias_activation_forward(branch, bias, activation),
                    bias_activation_forward(branch, bias, activation));
        bg.zero_();
        bg2.zero_();
        check_close(table().bias_activation_backward(dy, branch, bias, activation, bg),
                    bias_activation_backward(dy, branch, bias, activation, bg2));
        check_close(bg, bg2, 2);
      }
    }
}

TEST_CASE("CUDA kernels of heads equal the loops of CPUs") {
  for (const at::ScalarType type : kTypes) {
    CAPTURE(type);
    const auto wide = type == at::kDouble ? at::kDouble : at::kFloat;
    const at::Tensor angles = at::randn({7, 3}, at::kDouble);
    const at::Tensor turns = at::stack({angles.cos(), angles.sin()}).to(wide),
                     position = at::tensor({6, 0, 2, 2, 5}, at::kLong);
    const at::Tensor qkv = random({5, 2 * 3 * 8}, type), again = qkv.clone();
    const auto heads = [](const at::Tensor& t) { return t.narrow(1, 8, 24).view({5, 3, 8}); };
    table().rotate_pairs_(heads(qkv), turns, position, false);
    rotate_pairs_(heads(again), turns, position, false);
    check_close(qkv, again);

    const at::Tensor logits = random({6, 33}, type), label = at::tensor({0, 32, -1, 40, 5, 7}, at::kLong);
    const auto [largest, sum, picked] = table().cross_entropy_stats(logits, label);
    const auto [largest2, sum2, picked2] = cross_entropy_stats(logits, label);
    CHECK(at::equal(largest, largest2));
    check_close(sum, sum2);
    CHECK(at::equal(picked, picked2));
    const at::Tensor lse = largest + sum.log(), scale = at::arange(6, at::kDouble).to(wide);
    const at::Tensor gradient = logits.clone();
    table().cross_entropy_gradient_(gradient, label, lse, scale);
    cross_entropy_gradient_(logits, label, lse, scale);
    check_close(gradient, logits);

    AttentionDropout dropout{.seed = 3,
                             .op = 9,
                             .step = 2,
                             .probability = 0.25,
                             .samples = at::tensor({4, 11}, at::kLong),
                             .first_head = 1,
                             .max_positions = 40};
    for (const bool drops : {true, false}) {
      if (!drops) dropout = {};
      const auto [q, k, v] = parts_of_qkv(random({2, 37, 3, 2, 16}, type));
      const at::Tensor d_out = random({2, 37, 2, 16}, type).transpose(1, 2);
      const auto [out, log_sum_exp] = table().attention_forward(q, k, v, 0.25, dropout);
      const auto [out2, log_sum_exp2] = attention_forward(q, k, v, 0.25, dropout);
      check_close(out, out2, 2);
      check_close(log_sum_exp, log_sum_exp2);
      check_close(table().attention_backward(d_out, q, k, v, out2, log_sum_exp2, 0.25, dropout),
                  attention_backward(d_out, q, k, v, out2, log_sum_exp2, 0.25, dropout), 4);
    }
  }
}

TEST_CASE("CUDA kernels take empty tensors") {
  const at::Tensor x = at::empty({0, 8}), weight = at::empty({8});
  CHECK(std::get<0>(table().layer_norm_forward(x, weight, weight, 1e-5)).numel() == 0);
  CHECK(table().bias_activation_forward(x, weight, Activation::gelu).numel() == 0);
  const at::Tensor q = at::empty({0, 2, 5, 8});
  CHECK(std::get<0>(table().attention_forward(q, q, q, 1, {})).numel() == 0);
}

}  // namespace shardline::cuda_kernels_test
