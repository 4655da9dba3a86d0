// Compares the vectorised loops on half-precision tensors with the same functions in float64 on the same numbers.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <utility>
#include <vector>

#include "core/error.h"
#include "tensor_parallel/kernels/aten/aten_kernels.h"
#include "tests/tensor_parallel/half.h"
#include "tests/tensor_parallel/kernels/kernel_inputs.h"

#include "tests/catch.h"

namespace shardline::half_kernels_test {
namespace {

// A half-precision layer, and the types of the residual stream that it supports.
std::vector<std::pair<at::ScalarType, at::ScalarType>> type_pairs() {
  return {{at::kBFloat16, at::kBFloat16}, {at::kHalf, at::kHalf}, {at::kBFloat16, at::kFloat}, {at::kHalf, at::kFloat}};
}

}  // namespace

TEST_CASE("Layer norm of half precision has fp32 statistics, gradients of parameters and residuals") {
  for (const auto& [type, residual] : type_pairs())
    for (const auto& [rows, n] : kShapes) {
      CAPTURE(rows, n, type, residual);
      const at::Tensor x = (normal({rows, n}, residual) * 2 + 5), dy = normal({rows, n}, type);
      const at::Tensor weight = normal({n}, type) + 1, bias = normal({n}, type);
      const auto [y, mean, rstd] = layer_norm_forward(x, weight, bias, 1e-3);
      const auto [y64, mean64, rstd64] = aten::layer_norm_forward(wide(x), wide(weight), wide(bias), 1e-3);
      CHECK(y.scalar_type() == type);
      CHECK(mean.scalar_type() == at::kFloat);
      CHECK(roundings(y, y64, 1e-5) <= 1);
      CHECK(roundings(mean, mean64) <= 1);
      CHECK(roundings(rstd, rstd64, 1e-5) <= 1);

      const int64_t valid = rows - rows / 3;
      at::Tensor dw = at::randn({n}), db = at::randn({n}), dw64 = wide(dw), db64 = wide(db);
      const at::Tensor dx = layer_norm_backward(dy, x, mean, rstd, weight, dw, db, valid);
      CHECK(dx.scalar_type() == residual);
      CHECK(roundings(dx, aten::layer_norm_backward(wide(dy), wide(x), mean64, rstd64, wide(weight), dw64, db64, valid),
                      1e-4) <= 1);
      CHECK(roundings(dw, dw64, 1e-5) <= 1);
      CHECK(roundings(db, db64, 1e-5) <= 1);
      CHECK(dx.equal(layer_norm_backward(dy, x, mean, rstd, weight, {}, {}, valid)));
    }
}

TEST_CASE("Activations and their gradients agree with float64 in half precision") {
  for (const auto activation :
       {Activation::gelu, Activation::gelu_tanh, Activation::relu, Activation::silu, Activation::tanh})
    for (const auto type : kHalfTypes)
      for (const auto& [rows, n] : kShapes) {
        CAPTURE(static_cast<int>(activation), rows, n, type);
        const at::Tensor x = normal({rows, n}, type, 3), dy = normal({rows, n}, type);
        for (const at::Tensor& bias : {normal({n}, type), at::Tensor()}) {
          const at::Tensor y = bias_activation_forward(x, bias, activation);
          CHECK(y.scalar_type() == type);
          CHECK(roundings(y, aten::bias_activation_forward(wide(x), wide(bias), activation)) <= 1);
          at::Tensor db = at::randn({n}), db64 = wide(db);
          const at::Tensor dx = bias_activation_backward(dy, x, bias, activation, db);
          CHECK(roundings(dx, aten::bias_activation_backward(wide(dy), wide(x), wide(bias), activation, db64)) <= 1);
          CHECK(roundings(db, db64, 1e-5) <= 1);
          CHECK(dx.equal(bias_activation_backward(dy, x, bias, activation, {})));
        }
      }
}

TEST_CASE("Dropout, residual and bias are fused in half precision, even with a residual in fp32") {
  for (const auto& [type, stream] : type_pairs())
    for (const auto& [rows, n] : kShapes)
      for (const double probability : {0.0, 0.1, 1.0}) {
        CAPTURE(rows, n, probability, type, stream);
        const auto dropout = dropout_rows_of(rows, probability);
        const at::Tensor x = normal({rows, n}, type), residual = at::randn({rows, n}).to(stream);
        for (const at::Tensor& bias : {normal({n}, type), at::Tensor()})
          for (const at::Tensor& other : {residual, at::Tensor()}) {
            const at::Tensor y = bias_dropout_add_forward(x, bias, other, dropout);
            CHECK(y.scalar_type() == (other.defined() ? stream : type));
            CHECK(roundings(y, aten::bias_dropout_add_forward(wide(x), wide(bias), wide(other), dropout)) <= 1);
          }
        const int64_t valid = rows - rows / 4;
        const at::Tensor dy = at::randn({rows, n}).to(stream);
        at::Tensor db = at::randn({n}), db64 = wide(db);
        const at::Tensor dx = bias_dropout_backward(dy, dropout, db, valid, type);
        CHECK(dx.scalar_type() == type);
        CHECK(roundings(dx, aten::bias_dropout_backward(wide(dy), dropout, db64, valid, at::kDouble)) <= 1);
        CHECK(roundings(db, db64, 1e-5) <= 1);
        CHECK(dx.equal(bias_dropout_backward(dy, dropout, {}, valid, type)));
      }
}

TEST_CASE("Types that do not match are refused") {
  const at::Tensor x = normal({2, 4}, at::kBFloat16), other = normal({2, 4}, at::kHalf), f = at::randn({2, 4});
  CHECK_THROWS_AS(bias_dropout_add_forward(x, {}, other, {}), InvariantError);
  CHECK_THROWS_AS(bias_dropout_add_forward(f, {}, x, {}), InvariantError);
  CHECK_THROWS_AS(layer_norm_forward(x, f[0].contiguous(), f[1].contiguous(), 1e-5), InvariantError);
}

TEST_CASE("ATen's operators give the same half-precision results as the loops") {
  for (const auto& [type, stream] : type_pairs()) {
    CAPTURE(type, stream);
    const int64_t rows = 30, n = 64;
    const at::Tensor x = normal({rows, n}, stream), branch = normal({rows, n}, type), bias = normal({n}, type);
    const at::Tensor weight = normal({n}, type) + 1, dy = normal({rows, n}, type);
    const auto [y, mean, rstd] = aten::layer_norm_forward(x, weight, bias, 1e-5);
    const auto [ours, our_mean, our_rstd] = layer_norm_forward(x, weight, bias, 1e-5);
    CHECK(y.scalar_type() == type);
    CHECK(roundings(y, wide(ours), 1e-5) <= 2);
    CHECK(roundings(mean, wide(our_mean)) <= 1);
    at::Tensor dw = at::zeros({n}), our_dw = at::zeros({n});
    const at::Tensor dx = aten::layer_norm_backward(dy, x, mean, rstd, weight, dw, {}, rows);
    CHECK(dx.scalar_type() == stream);
    CHECK(roundings(dx, wide(layer_norm_backward(dy, x, mean, rstd, weight, our_dw, {}, rows)), 1e-4) <= 2);
    CHECK(roundings(dw, wide(our_dw), 1e-5) <= 1);

    const auto dropout = dropout_rows_of(rows, 0.1);
    const at::Tensor added = aten::bias_dropout_add_forward(branch, bias, x, dropout);
    CHECK(added.scalar_type() == stream);
    // x + bias is rounded before the dropout.
    CHECK(roundings(added, wide(bias_dropout_add_forward(branch, bias, x, dropout)), 5 * roundoff(type)) <= 2);
    at::Tensor db = at::zeros({n}), our_db = at::zeros({n});
    const at::Tensor d_branch = aten::bias_dropout_backward(x, dropout, db, rows, type);
    CHECK(d_branch.equal(bias_dropout_backward(x, dropout, our_db, rows, type)));
    CHECK(roundings(db, wide(our_db)) <= 1);
  }
}

TEST_CASE("Cross entropy of half-precision logits is computed in fp32") {
  for (const auto type : kHalfTypes)
    for (const auto& [rows, v] : kShapes) {
      CAPTURE(rows, v, type);
      at::Tensor logits = (at::randn({rows, v}) * 8 + 30).to(type);
      const at::Tensor label = at::randint(-2, v + 2, {rows});
      const auto [largest_logit, sum, picked] = cross_entropy_stats(logits, label);
      const auto [largest64, sum64, picked64] = aten::cross_entropy_stats(wide(logits), label);
      CHECK(sum.scalar_type() == at::kFloat);
      CHECK(wide(largest_logit).equal(largest64));
      CHECK(wide(picked).equal(picked64));
      CHECK(roundings(sum, sum64) <= 1);

      at::Tensor scale = at::randn({rows});
      if (rows > 2) scale[2] = 0;
      const at::Tensor lse = largest_logit + sum.log();
      at::Tensor expected = wide(logits);
      aten::cross_entropy_gradient_(expected, label, wide(lse), wide(scale));
      cross_entropy_gradient_(logits, label, lse, scale);
      CHECK(roundings(logits, expected) <= 1);
      if (rows > 2) CHECK(logits[2].eq(0).all().item<bool>());
    }
}

TEST_CASE("Half-precision logits that are infinite or NaN are not hidden") {
  const at::Tensor label = at::tensor({int64_t{1}, int64_t{0}});
  for (const auto type : kHalfTypes) {
    at::Tensor logits = at::full({2, 100}, -INFINITY, type);
    logits[0][1] = 5;
    logits[1][99] = NAN;
    const auto [top, sum, picked] = cross_entropy_stats(logits, label);
    CHECK(top[0].item<float>() == 5);
    CHECK(sum[0].item<float>() == 1);
    CHECK(sum[1].isnan().item<bool>());
  }
}

TEST_CASE("Sums over half-precision rows do not depend on the number of threads") {
  const int before = at::get_num_threads();
  const int64_t rows = 500, n = 300;
  const at::Tensor x = normal({rows, n}, at::kBFloat16), weight = normal({n}, at::kBFloat16);
  const auto dropout = dropout_rows_of(rows, 0.3);
  std::vector<at::Tensor> results;
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    const auto [y, mean, rstd] = layer_norm_forward(x, weight, weight, 1e-5);
    const at::Tensor sums = at::zeros({4, n});
    layer_norm_backward(x, x, mean, rstd, weight, sums[0], sums[1], rows);
    bias_activation_backward(x, x, weight, Activation::gelu_tanh, sums[2]);
    bias_dropout_backward(x, dropout, sums[3], rows, at::kBFloat16);
    results.push_back(sums);
  }
  at::set_num_threads(before);
  CHECK(results[1].equal(results[0]));
  CHECK(results[2].equal(results[0]));
}

}  // namespace shardline::half_kernels_test
