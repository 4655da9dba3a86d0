#include "tests/tensor_parallel/kernels/cuda/tensors/kernel_checks.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <source_location>

#include "tensor_parallel/kernels/row_kernels.h"

#include "tests/catch.h"

namespace shardline::testing {
namespace {

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble};

at::Tensor random(at::IntArrayRef sizes, at::ScalarType type) {
  return at::randn(sizes, at::kDouble).to(type);
}
at::ScalarType wide_type(at::ScalarType type) {
  return type == at::kDouble ? at::kDouble : at::kFloat;
}

// Half-precision results may be rounded to the other neighbour; `more`: additional tolerance for what is computed from
// such results.
void check_close(const at::Tensor& actual, const at::Tensor& expected, double more = 1,
                 std::source_location caller = std::source_location::current()) {
  INFO("the comparison in line " << caller.line());
  REQUIRE(actual.scalar_type() == expected.scalar_type());
  REQUIRE(actual.sizes() == expected.sizes());
  const double step = actual.scalar_type() == at::kBFloat16 ? 8e-3 : actual.scalar_type() == at::kHalf ? 1e-3 : 2e-5;
  const at::Tensor a = actual.cpu().to(at::kDouble), b = expected.to(at::kDouble);
  INFO("largest difference " << (a - b).abs().max().item<double>() << ", largest value "
                             << b.abs().max().item<double>());
  CHECK(at::allclose(a, b, step * more, step * more));
}

// A CPU tensor and its copy on the device, which become different when a kernel changes the copy.
struct Both {
  at::Tensor cpu, device;
};

}  // namespace

void check_row_kernels(const KernelTable& kernels, at::Device device, int64_t rows, int64_t n) {
  const int64_t valid = rows - 1;
  const auto there = [&](const at::Tensor& t) { return t.defined() ? t.to(device, false, /*copy=*/true) : t; };
  const auto sums = [&](at::ScalarType type) {
    const at::Tensor zeros = at::zeros({n}, wide_type(type));
    return Both{zeros, there(zeros)};
  };
  for (const at::ScalarType type : kTypes)
    for (const at::ScalarType border : {type, at::kFloat}) {
      if (type == at::kDouble && border != type) continue;
      CAPTURE(type, border, rows, n);
      const at::Tensor x = random({rows, n}, border), weight = random({n}, type), bias = random({n}, type),
                       dy = random({rows, n}, type), residual = random({rows, n}, border);
      const auto [y, mean, rstd] = kernels.layer_norm_forward(there(x), there(weight), there(bias), 1e-5);
      const auto [y2, mean2, rstd2] = layer_norm_forward(x, weight, bias, 1e-5);
      check_close(y, y2);
      check_close(mean, mean2);
      check_close(rstd, rstd2);
      Both wg = sums(type), bg = sums(type);
      check_close(kernels.layer_norm_backward(there(dy), there(x), there(mean2), there(rstd2), there(weight), wg.device,
                                              bg.device, valid),
                  layer_norm_backward(dy, x, mean2, rstd2, weight, wg.cpu, bg.cpu, valid), 4);
      check_close(wg.device, wg.cpu);
      check_close(bg.device, bg.cpu);

      const auto [rms, rms_rstd] = kernels.rms_norm_forward(there(x), there(weight), 1e-5);
      const auto [rms2, rms_rstd2] = rms_norm_forward(x, weight, 1e-5);
      check_close(rms, rms2);
      check_close(rms_rstd, rms_rstd2);
      wg = sums(type);
      check_close(kernels.rms_norm_backward(there(dy), there(x), there(rms_rstd2), there(weight), wg.device, valid),
                  rms_norm_backward(dy, x, rms_rstd2, weight, wg.cpu, valid), 4);
      check_close(wg.device, wg.cpu);

      const DropoutRows rows_of{.seed = 77,
                                .op = 5,
                                .step = 9,
                                .probability = 0.2,
                                .samples = at::randint(1000, {rows}, at::kLong),
                                .places = at::randint(50, {rows}, at::kLong),
                                .first_token = 1,
                                .tokens = rows};
      DropoutRows rows_there = rows_of;
      rows_there.samples = there(rows_of.samples);
      rows_there.places = there(rows_of.places);
      const at::Tensor branch = random({rows, n}, type);
      check_close(kernels.bias_dropout_add_forward(there(branch), there(bias), there(residual), rows_there),
                  bias_dropout_add_forward(branch, bias, residual, rows_of));
      check_close(kernels.bias_dropout_add_forward(there(branch), {}, {}, rows_there),
                  bias_dropout_add_forward(branch, {}, {}, rows_of));
      bg = sums(type);
      check_close(kernels.bias_dropout_backward(there(residual), rows_there, bg.device, valid, type),
                  bias_dropout_backward(residual, rows_of, bg.cpu, valid, type));
      check_close(bg.device, bg.cpu);

      // Without dropout, the gradient of the branch is the residual's itself, not a copy, if the types are equal.
      bg = sums(type);
      const at::Tensor given = there(residual),
                       passed = kernels.bias_dropout_backward(given, {}, bg.device, valid, type);
      check_close(passed, bias_dropout_backward(residual, {}, bg.cpu, valid, type));
      check_close(bg.device, bg.cpu);
      CHECK(passed.is_same(given) == (type == border));

      const at::Tensor wide_rows = random({rows, n + 3}, type);
      bg = sums(type);
      kernels.add_column_sums(bg.device, there(wide_rows).narrow(1, 1, n));
      add_row_sums(bg.cpu, wide_rows.narrow(1, 1, n));
      check_close(bg.device, bg.cpu);

      for (const auto activation :
           {Activation::gelu, Activation::gelu_tanh, Activation::relu, Activation::silu, Activation::tanh}) {
        check_close(kernels.bias_activation_forward(there(branch), there(bias), activation),
                    bias_activation_forward(branch, bias, activation));
        bg = sums(type);
        check_close(kernels.bias_activation_backward(there(dy), there(branch), there(bias), activation, bg.device),
                    bias_activation_backward(dy, branch, bias, activation, bg.cpu));
        check_close(bg.device, bg.cpu, 2);
      }
    }
}

void check_head_kernels(const KernelTable& kernels, at::Device device, int64_t length, int64_t head_dim,
                        int64_t words) {
  const auto there = [&](const at::Tensor& t) { return t.to(device, false, /*copy=*/true); };
  for (const at::ScalarType type : kTypes) {
    CAPTURE(type, length, head_dim, words);
    const auto wide = wide_type(type);
    const at::Tensor angles = at::randn({7, 3}, at::kDouble);
    const at::Tensor turns = at::stack({angles.cos(), angles.sin()}).to(wide),
                     position = at::tensor({6, 0, 2, 2, 5}, at::kLong);
    const at::Tensor qkv = random({5, 2 * 3 * 8}, type), turned = there(qkv);
    const auto heads = [](const at::Tensor& t) { return t.narrow(1, 8, 24).view({5, 3, 8}); };
    kernels.rotate_pairs_(heads(turned), there(turns), there(position), false);
    rotate_pairs_(heads(qkv), turns, position, false);
    check_close(turned, qkv);

    const at::Tensor logits = random({6, words}, type), label = at::tensor({0l, words - 1, -1l, words + 7, 5l, 7l});
    const auto [largest, sum, picked] = kernels.cross_entropy_stats(there(logits), there(label));
    const auto [largest2, sum2, picked2] = cross_entropy_stats(logits, label);
    CHECK(at::equal(largest.cpu(), largest2));
    check_close(sum, sum2);
    CHECK(at::equal(picked.cpu(), picked2));
    const at::Tensor lse = largest2 + sum2.log(), scale = at::arange(6, at::kDouble).to(wide);
    const at::Tensor gradient = there(logits);
    kernels.cross_entropy_gradient_(gradient, there(label), there(lse), there(scale));
    cross_entropy_gradient_(logits, label, lse, scale);
    check_close(gradient, logits);

    const AttentionDropout drops{.seed = 3,
                                 .op = 9,
                                 .step = 2,
                                 .probability = 0.25,
                                 .samples = at::tensor({4, 11, 5}, at::kLong),
                                 .first_head = 1,
                                 .max_positions = length + 3};
    for (const AttentionDropout& dropout : {drops, AttentionDropout{}})
      for (const AttentionPattern& pattern : {AttentionPattern{},
                                              {.causal = false},
                                              {.window = 3},
                                              {.ends = {length / 2, length}},
                                              {.causal = false, .ends = {1, 1, length}}}) {
        CAPTURE(dropout.probability, pattern.causal, pattern.window, pattern.ends);
        AttentionDropout here = dropout;
        if (!pattern.ends.empty()) here.first_places = at::tensor({0, 3, 1}, at::kLong);
        AttentionDropout over_there = here;
        if (here.probability > 0) over_there.samples = there(here.samples);
        if (here.first_places.defined()) over_there.first_places = there(here.first_places);
        const at::Tensor parts = random({pattern.ends.empty() ? 2 : 1, length, 3, 2, head_dim}, type);
        const auto [q, k, v] = parts_of_qkv(parts);
        const auto [q1, k1, v1] = parts_of_qkv(there(parts));
        const at::Tensor d_out = random({parts.size(0), length, 2, head_dim}, type);
        const double divided = 1 / std::sqrt(head_dim);
        const auto [out, log_sum_exp] = kernels.attention_forward(q1, k1, v1, divided, over_there, pattern);
        const auto [out2, log_sum_exp2] = attention_forward(q, k, v, divided, here, pattern);
        check_close(out, out2, 2);
        check_close(log_sum_exp, log_sum_exp2);
        check_close(kernels.attention_backward(there(d_out).transpose(1, 2), q1, k1, v1, there(out2),
                                               there(log_sum_exp2), divided, over_there, pattern),
                    attention_backward(d_out.transpose(1, 2), q, k, v, out2, log_sum_exp2, divided, here, pattern), 4);
      }
  }
}

}  // namespace shardline::testing
