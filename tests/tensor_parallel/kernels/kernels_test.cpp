// Compares the vectorised loops with the same functions in ATen (aten_kernels.h), which are compared with autograd.
#include "tensor_parallel/kernels/kernels.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "core/numbers/philox.h"
#include "tensor_parallel/kernels/aten/aten_kernels.h"
#include "tests/tensor_parallel/kernels/kernel_inputs.h"

#include "tests/catch.h"

namespace shardline::kernels_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Compares a result of either type with the same computation in float64, relative to the largest entry or 1.
void check_close(const at::Tensor& got, const at::Tensor& exact, double float_tolerance = 2e-6) {
  REQUIRE(got.sizes() == exact.sizes());
  if (got.numel() == 0) return;
  REQUIRE(!got.isnan().any().item<bool>());
  const double tolerance = got.scalar_type() == at::kDouble ? 1e-13 : float_tolerance;
  const double scale = std::max(1.0, exact.abs().max().item<double>());
  CHECK((got.to(at::kDouble) - exact.to(at::kDouble)).abs().max().item<double>() <= tolerance * scale);
}

at::Tensor wide(const at::Tensor& t) {
  return t.defined() ? t.to(at::kDouble, false, true) : t;
}

// Calls check(type) for both types with every number of threads; the result must not depend on the number.
template <class Compute>
void same_for_all_threads(const Compute& compute) {
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const std::vector<at::Tensor> expected = compute();
  for (const int threads : {2, 3}) {
    at::set_num_threads(threads);
    const std::vector<at::Tensor> results = compute();
    for (size_t i = 0; i < results.size(); ++i) CHECK(results[i].equal(expected[i]));
  }
  at::set_num_threads(before);
}

const std::vector<at::ScalarType> kTypes = {at::kFloat, at::kDouble};

}  // namespace

TEST_CASE("Layer norm") {
  for (const auto type : kTypes)
    for (const auto& [rows, n] : kShapes) {
      CAPTURE(rows, n, type);
      const at::Tensor x = at::randn({rows, n}, type) * 2 + 5, dy = at::randn({rows, n}, type);
      const at::Tensor weight = at::randn({n}, type) + 1, bias = at::randn({n}, type);
      const auto [y, mean, rstd] = layer_norm_forward(x, weight, bias, 1e-3);
      const auto [y64, mean64, rstd64] = aten::layer_norm_forward(wide(x), wide(weight), wide(bias), 1e-3);
      check_close(y, y64, 1e-5);
      check_close(mean, mean64);
      check_close(rstd, rstd64, 1e-5);

      const int64_t valid = rows - rows / 3;
      at::Tensor dw = at::randn({n}, type), db = at::randn({n}, type), dw64 = wide(dw), db64 = wide(db);
      const at::Tensor dx = layer_norm_backward(dy, x, mean, rstd, weight, dw, db, valid);
      check_close(dx, aten::layer_norm_backward(wide(dy), wide(x), mean64, rstd64, wide(weight), dw64, db64, valid),
                  1e-4);
      check_close(dw, dw64, 1e-5);
      check_close(db, db64, 1e-5);
      CHECK(dx.equal(layer_norm_backward(dy, x, mean, rstd, weight, {}, {}, valid)));
    }
}

TEST_CASE("A row's layer norm depends neither on its neighbours nor on its place in memory") {
  const int64_t n = 771;
  const at::Tensor x = at::randn({9, n}), weight = at::randn({n}), bias = at::randn({n});
  const auto [y, mean, rstd] = layer_norm_forward(x, weight, bias, 1e-5);
  for (int64_t row = 0; row < 9; ++row) {
    const auto [alone, m, r] = layer_norm_forward(x.narrow(0, row, 1).clone(), weight, bias, 1e-5);
    CHECK(alone[0].equal(y[row]));
    CHECK(m.item<float>() == mean[row].item<float>());
  }
}

TEST_CASE("Sums over rows do not depend on the number of threads") {
  const int64_t rows = 500, n = 300;
  const at::Tensor x = at::randn({rows, n}), dy = at::randn({rows, n}), weight = at::randn({n}), bias = at::randn({n});
  const auto dropout = dropout_rows_of(rows, 0.3);
  same_for_all_threads([&] {
    const auto [y, mean, rstd] = layer_norm_forward(x, weight, bias, 1e-5);
    const at::Tensor dw = at::zeros({n}), db = at::zeros({n}), da = at::zeros({n}), dd = at::zeros({n});
    const at::Tensor dx = layer_norm_backward(dy, x, mean, rstd, weight, dw, db, rows);
    bias_activation_backward(dy, x, bias, Activation::gelu_tanh, da);
    bias_dropout_backward(dy, dropout, dd, rows, at::kFloat);
    return std::vector<at::Tensor>{y, dx, dw, db, da, dd};
  });
}

TEST_CASE("Activations and their gradients") {
  for (const auto activation :
       {Activation::gelu, Activation::gelu_tanh, Activation::relu, Activation::silu, Activation::tanh})
    for (const auto type : kTypes)
      for (const auto& [rows, n] : kShapes) {
        CAPTURE(static_cast<int>(activation), rows, n, type);
        const at::Tensor x = at::randn({rows, n}, type) * 3, dy = at::randn({rows, n}, type);
        for (const at::Tensor& bias : {at::randn({n}, type), at::Tensor()}) {
          check_close(bias_activation_forward(x, bias, activation),
                      aten::bias_activation_forward(wide(x), wide(bias), activation));
          at::Tensor db = at::randn({n}, type), db64 = wide(db);
          const at::Tensor dx = bias_activation_backward(dy, x, bias, activation, db);
          check_close(dx, aten::bias_activation_backward(wide(dy), wide(x), wide(bias), activation, db64));
          check_close(db, db64, 1e-5);
          CHECK(dx.equal(bias_activation_backward(dy, x, bias, activation, {})));
        }
      }
}

TEST_CASE("Activations are right at zero and far from it") {
  const at::Tensor x = at::cat({at::linspace(-200, 200, 4001, at::kFloat), at::tensor({0.0f, -0.0f, 1e-30f, 3e38f})});
  const at::Tensor row = x.unsqueeze(0), ones = at::full(row.sizes(), 1.0);
  for (const auto activation : {Activation::gelu, Activation::gelu_tanh, Activation::silu, Activation::tanh}) {
    CAPTURE(static_cast<int>(activation));
    const at::Tensor y = bias_activation_forward(row, {}, activation);
    CHECK((wide(y) - aten::bias_activation_forward(wide(row), {}, activation))
              .abs()
              .div(wide(row).abs().clamp_min(1))
              .max()
              .item<double>() < 3e-7);
    const at::Tensor slope = bias_activation_backward(ones, row, {}, activation, {}).narrow(1, 0, 4003);
    check_close(slope, aten::bias_activation_backward(wide(ones), wide(row), {}, activation, {}).narrow(1, 0, 4003));
  }
  const at::Tensor nan = at::full({1, 20}, std::nan(""), at::kFloat);
  for (const auto activation :
       {Activation::gelu, Activation::gelu_tanh, Activation::relu, Activation::silu, Activation::tanh})
    CHECK(bias_activation_forward(nan, {}, activation).isnan().all().item<bool>());
}

TEST_CASE("Activations have Hugging Face's names") {
  CHECK(activation_from_name("gelu") == Activation::gelu);
  for (const char* name : {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"})
    CHECK(activation_from_name(name) == Activation::gelu_tanh);
  CHECK(activation_from_name("swish") == Activation::silu);
  CHECK_THROWS_WITH(activation_from_name("gleu"), Catch::Contains("gleu") && Catch::Contains("gelu_new"));
  CHECK_THROWS_AS(activation_from_name(""), ConfigError);
}

TEST_CASE("Dropout, residual and bias") {
  for (const auto type : kTypes)
    for (const auto& [rows, n] : kShapes)
      for (const double probability : {0.0, 0.4, 1.0}) {
        CAPTURE(rows, n, probability, type);
        const auto dropout = dropout_rows_of(rows, probability);
        const at::Tensor x = at::randn({rows, n}, type), residual = at::randn({rows, n}, type);
        for (const at::Tensor& bias : {at::randn({n}, type), at::Tensor()})
          for (const at::Tensor& other : {residual, at::Tensor()})
            check_close(bias_dropout_add_forward(x, bias, other, dropout),
                        aten::bias_dropout_add_forward(wide(x), wide(bias), wide(other), dropout));
        const int64_t valid = rows - rows / 4;
        at::Tensor db = at::randn({n}, type), db64 = wide(db);
        const at::Tensor dx = bias_dropout_backward(x, dropout, db, valid, type);
        check_close(dx, aten::bias_dropout_backward(wide(x), dropout, db64, valid, at::kDouble));
        check_close(db, db64, 1e-5);
        CHECK(dx.equal(bias_dropout_backward(x, dropout, {}, valid, type)));
      }
}

TEST_CASE("A dropout mask equals that of random_word, for any position of the row") {
  const int64_t n = 2500;  // more than one chunk
  const DropoutRows rows{.seed = 1,
                         .op = 2,
                         .step = 3,
                         .probability = 0.25,
                         .samples = at::tensor({4, 4, 4, 9, 9, 9}, at::kLong),
                         .places = at::tensor({5, 6, 7, 5, 6, 7}, at::kLong),
                         .first_token = 2,
                         .tokens = 6};
  const at::Tensor y = bias_dropout_add_forward(at::full({5, n}, 1.0), {}, {}, rows);
  const std::pair<uint32_t, int64_t> sample_and_position[] = {{4, 7}, {9, 5}, {9, 6}, {9, 7}};
  for (int64_t row = 0; row < 4; ++row)
    for (const int64_t i : {int64_t{0}, int64_t{1}, int64_t{1023}, int64_t{1024}, int64_t{1027}, n - 1}) {
      const auto [sample, position] = sample_and_position[row];
      const auto word = random_word({1, 2, 3, sample}, position * n + i);
      CHECK(y[row][i].item<float>() == (word < 0.75 * 4294967296.0 ? 1 / 0.75f : 0.0f));
    }
  CHECK(y[4].eq(1).all().item<bool>());
  CHECK(y[0].eq(0).sum().item<int64_t>() == Approx(0.25 * n).margin(100));
}

TEST_CASE("Cross entropy") {
  for (const auto type : kTypes)
    for (const auto& [rows, v] : kShapes) {
      CAPTURE(rows, v, type);
      at::Tensor logits = at::randn({rows, v}, type) * 8 + 30;
      const at::Tensor label = at::randint(-2, v + 2, {rows});
      const auto [largest, sum, picked] = cross_entropy_stats(logits, label);
      const auto [largest64, sum64, picked64] = aten::cross_entropy_stats(wide(logits), label);
      check_close(largest, largest64, 0);
      check_close(sum, sum64);
      check_close(picked, picked64, 0);

      at::Tensor scale = at::randn({rows}, type);
      if (rows > 2) scale[2] = 0;
      const at::Tensor lse = largest + sum.log();
      at::Tensor expected = wide(logits);
      aten::cross_entropy_gradient_(expected, label, wide(lse), wide(scale));
      cross_entropy_gradient_(logits, label, lse, scale);
      check_close(logits, expected);
      if (rows > 2) CHECK(logits[2].eq(0).all().item<bool>());
    }
}

TEST_CASE("Cross entropy is right for extreme logits") {
  const at::Tensor label = at::tensor({int64_t{1}, int64_t{0}, int64_t{0}, int64_t{3}});
  for (const auto type : kTypes) {
    const auto stats = [&](const at::Tensor& logits) { return cross_entropy_stats(logits, label); };
    at::Tensor logits = at::full({4, 5000}, -kInfinity, type);
    logits[0][1] = 1e30;   // all the weight on one entry, in its first chunk
    logits[1][4999] = -5;  // and in its last
    logits[2].fill_(1e4);
    const auto [largest, sum, picked] = stats(logits);  // the last row has no entry
    check_close(largest.narrow(0, 0, 3), at::tensor({1e30, -5.0, 1e4}));
    CHECK(largest[3].item<double>() == -kInfinity);
    check_close(sum, at::tensor({1.0, 1.0, 5000.0, 0.0}));
    CHECK(picked[1].item<double>() == -kInfinity);

    logits[2][4000] = std::nan("");
    CHECK(std::get<1>(stats(logits))[2].isnan().item<bool>());  // a broken model is not hidden
    logits[2].fill_(std::nan(""));
    at::Tensor scale = at::full({4}, 1.0, type);
    scale[2] = 0;
    cross_entropy_gradient_(logits, label, at::zeros({4}, type), scale);
    CHECK(logits[2].eq(0).all().item<bool>());  // an ignored row adds nothing, whatever it holds
  }
}

TEST_CASE("Cross entropy is right on a rank without entries") {
  const at::Tensor label = at::tensor({int64_t{0}, int64_t{-5}});
  const auto [largest, sum, picked] = cross_entropy_stats(at::empty({2, 0}), label);
  CHECK(largest.eq(-kInfinity).all().item<bool>());
  CHECK(sum.eq(0).all().item<bool>());
  CHECK(picked.eq(0).all().item<bool>());
  cross_entropy_gradient_(at::empty({2, 0}), label, at::zeros({2}), at::zeros({2}));
}

}  // namespace shardline::kernels_test
