// Compares attention with dropout, computed block by block, with the whole matrix in float64, which is compared with
// finite differences.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "core/numbers/philox.h"
#include "tensor_parallel/kernels/aten/aten_kernels.h"
#include "tensor_parallel/kernels/kernels.h"
#include "tensor_parallel/products/products_onednn.h"

#include "tests/catch.h"

namespace shardline::attention_kernels_test {
namespace {

AttentionDropout dropout_of(int64_t batch, double probability) {
  return {.seed = 5,
          .op = 11,
          .step = 2,
          .probability = probability,
          .samples = at::arange(40, 40 + batch, at::kLong),
          .first_head = 3,
          .max_positions = 301};
}

at::Tensor wide(const at::Tensor& t) {
  return t.to(at::kDouble, false, true);  // always a copy
}

void check_close(const at::Tensor& got, const at::Tensor& exact) {
  REQUIRE(got.sizes() == exact.sizes());
  if (got.numel() == 0) return;
  REQUIRE(!got.isnan().any().item<bool>());
  const double tolerance = got.scalar_type() == at::kDouble ? 1e-13 : 5e-6;
  const double scale = std::max(1.0, exact.abs().max().item<double>());
  CHECK((wide(got) - exact).abs().max().item<double>() <= tolerance * scale);
}

// q, k, v as they are laid out in one [batch, length, 3, heads, head_dim] projection.
std::array<at::Tensor, 3> projected(int64_t batch, int64_t heads, int64_t length, int64_t head_dim,
                                    at::ScalarType type) {
  const at::Tensor qkv = at::randn({batch, length, 3, heads, head_dim}, type).permute({2, 0, 3, 1, 4});
  return {qkv[0], qkv[1], qkv[2]};
}

struct Sizes {
  int64_t batch, heads, length, head_dim;
};

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("Attention with dropout agrees with the whole matrix") {
  for (const auto type : {at::kFloat, at::kDouble})
    for (const Sizes& s : {Sizes{1, 1, 1, 1}, {2, 3, 7, 5}, {3, 2, 64, 8}, {2, 2, 65, 16}, {1, 2, 200, 32}})
      for (const double probability : {0.0, 0.3, 1.0}) {
        CAPTURE(s.batch, s.heads, s.length, s.head_dim, probability, type);
        const auto [q, k, v] = projected(s.batch, s.heads, s.length, s.head_dim, type);
        const auto dropout = dropout_of(s.batch, probability);
        const double scale = 0.7;
        const auto [out, lse] = attention_forward(q, k, v, scale, dropout);
        const auto [out64, lse64] = aten::attention_forward(wide(q), wide(k), wide(v), scale, dropout);
        check_close(out, out64);
        check_close(lse, lse64);

        const at::Tensor d_out = at::randn({s.batch, s.length, s.heads, s.head_dim}, type).transpose(1, 2);
        const auto [dq, dk, dv] = parts_of_qkv(attention_backward(d_out, q, k, v, out, lse, scale, dropout));
        const auto [dq64, dk64, dv64] = parts_of_qkv(
            aten::attention_backward(wide(d_out), wide(q), wide(k), wide(v), out64, lse64, scale, dropout));
        check_close(dq, dq64);
        check_close(dk, dk64);
        check_close(dv, dv64);
      }
}

TEST_CASE("Without dropout it is causal attention as torch has it") {
  const auto [q, k, v] = projected(2, 3, 90, 16, at::kDouble);
  const auto [out, lse] = attention_forward(q, k, v, 0.25, dropout_of(2, 0));
  check_close(out, at::scaled_dot_product_attention(q, k, v, {}, 0.0, true, 0.25));
}

TEST_CASE("Attention to later keys, in a window, and within segments agrees with the whole matrix") {
  const std::vector<AttentionPattern> patterns = {{.causal = false},
                                                  {.window = 1},
                                                  {.window = 70},
                                                  {.ends = {1, 66, 66, 200}},
                                                  {.causal = false, .ends = {130, 131, 200}},
                                                  {.window = 5, .ends = {100, 200}}};
  for (const auto type : {at::kFloat, at::kDouble})
    for (const AttentionPattern& pattern : patterns)
      for (const double probability : {0.0, 0.3}) {
        CAPTURE(pattern.causal, pattern.window, pattern.ends, probability, type);
        const auto [q, k, v] = projected(pattern.ends.empty() ? 2 : 1, 2, 200, 8, type);
        auto dropout = dropout_of(4, probability);
        if (!pattern.ends.empty()) dropout.first_places = at::tensor({0, 7, 3, 90}, at::kLong);
        const auto [out, lse] = attention_forward(q, k, v, 0.7, dropout, pattern);
        const auto [out64, lse64] = aten::attention_forward(wide(q), wide(k), wide(v), 0.7, dropout, pattern);
        check_close(out, out64);
        check_close(lse, lse64);
        const at::Tensor d_out = at::randn({q.size(0), 200, 2, 8}, type).transpose(1, 2);
        check_close(
            attention_backward(d_out, q, k, v, out, lse, 0.7, dropout, pattern),
            aten::attention_backward(wide(d_out), wide(q), wide(k), wide(v), out64, lse64, 0.7, dropout, pattern));
        if (probability > 0) continue;
        const at::Tensor hidden = at::zeros({200, 200}, at::kBool);
        bool* hides = hidden.data_ptr<bool>();
        for (int64_t query = 0; query < 200; ++query)
          for (int64_t key = 0; key < 200; ++key) {
            const auto segment = [&](int64_t place) {
              return std::ranges::upper_bound(pattern.ends, place) - pattern.ends.begin();
            };
            hides[query * 200 + key] = segment(query) != segment(key) || (pattern.causal && key > query) ||
                                       (pattern.window > 0 && key <= query - pattern.window);
          }
        check_close(out,
                    at::scaled_dot_product_attention(wide(q), wide(k), wide(v), hidden.logical_not(), 0.0, false, 0.7));
      }
}

TEST_CASE("The gradients of attention with dropout are its slopes") {
  const auto [q, k, v] = projected(1, 1, 4, 3, at::kDouble);
  const auto dropout = dropout_of(1, 0.4);
  const at::Tensor d_out = at::randn({1, 1, 4, 3}, at::kDouble);
  const auto value = [&](const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
    return (std::get<0>(attention_forward(a, b, c, 0.6, dropout)) * d_out).sum().item<double>();
  };
  const auto [out, lse] = attention_forward(q, k, v, 0.6, dropout);
  const auto [dq, dk, dv] = parts_of_qkv(attention_backward(d_out, q, k, v, out, lse, 0.6, dropout));
  for (int64_t position = 0; position < 4; ++position)
    for (int64_t feature = 0; feature < 3; ++feature) {
      at::Tensor step = at::zeros_like(q);
      step[0][0][position][feature] = 1e-6;
      const auto slope = [](double up, double down) { return (up - down) / 2e-6; };
      const auto entry = [&](const at::Tensor& t) { return t[0][0][position][feature].item<double>(); };
      CHECK(entry(dq) == Approx(slope(value(q + step, k, v), value(q - step, k, v))).margin(1e-7));
      CHECK(entry(dk) == Approx(slope(value(q, k + step, v), value(q, k - step, v))).margin(1e-7));
      CHECK(entry(dv) == Approx(slope(value(q, k, v + step), value(q, k, v - step))).margin(1e-7));
    }
}

TEST_CASE("Every rank drops the same probabilities of a head") {
  const auto [q, k, v] = projected(2, 4, 70, 8, at::kFloat);
  const auto all = dropout_of(2, 0.5);
  const auto [out, lse] = attention_forward(q, k, v, 1, all);
  auto half = all;
  half.first_head += 2;
  const auto part = [](const at::Tensor& t) { return t.narrow(1, 2, 2); };
  CHECK(std::get<0>(attention_forward(part(q), part(k), part(v), 1, half)).equal(part(out)));
  half.first_head -= 2;
  CHECK(!std::get<0>(attention_forward(part(q), part(k), part(v), 1, half)).equal(part(out)));
}

TEST_CASE("A probability's word is (head * max positions + query) * max positions + key") {
  // One key's value is visible at a time: v is the identity.
  const int64_t length = 5;
  const at::Tensor q = at::full({1, 1, length, length}, 0.0), v = at::eye(length).view(q.sizes());
  const auto dropout = dropout_of(1, 0.5);
  const at::Tensor out = std::get<0>(attention_forward(q, q, v, 1, dropout));
  for (int64_t query = 0; query < length; ++query)
    for (int64_t key = 0; key < length; ++key) {
      const auto word = random_word({5, 11, 2, 40}, static_cast<uint64_t>((3 * 301 + query) * 301 + key));
      const bool kept = key <= query && word < 0x80000000u;
      CHECK(out[0][0][query][key].item<float>() == Approx(kept ? 2.0 / static_cast<double>(query + 1) : 0.0));
    }
}

TEST_CASE("Attention is computed for an empty microbatch, and on a rank without heads") {
  for (const Sizes& s : {Sizes{0, 2, 4, 8}, {2, 0, 4, 8}}) {
    const auto [q, k, v] = projected(s.batch, s.heads, s.length, s.head_dim, at::kFloat);
    const auto dropout = dropout_of(s.batch, 0.5);
    const auto [out, lse] = attention_forward(q, k, v, 1, dropout);
    CHECK(out.sizes() == q.sizes());
    CHECK(lse.sizes() == q.sizes().slice(0, 3));
    const auto [dq, dk, dv] = parts_of_qkv(attention_backward(out, q, k, v, out, lse, 1, dropout));
    for (const at::Tensor& gradient : {dq, dk, dv}) CHECK(gradient.sizes() == q.sizes());
  }
}

TEST_CASE("Attention does not depend on the number of threads") {
  const int before = at::get_num_threads();
  const auto [q, k, v] = projected(2, 3, 130, 16, at::kFloat);
  const auto dropout = dropout_of(2, 0.2);
  std::vector<at::Tensor> outs, gradients;
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    const auto [out, lse] = attention_forward(q, k, v, 1, dropout);
    const auto [dq, dk, dv] = parts_of_qkv(attention_backward(q, q, k, v, out, lse, 1, dropout));
    outs.push_back(out);
    gradients.push_back(at::cat({dq, dk, dv}));
  }
  at::set_num_threads(before);
  for (size_t i = 1; i < outs.size(); ++i) {
    CHECK(outs[i].equal(outs[0]));
    CHECK(gradients[i].equal(gradients[0]));
  }
}

TEST_CASE("Attention over long sequences agrees with torch's in float64, and prepares its products once") {
  const auto prepared = [] { return onednn_library().prepared ? onednn_library().prepared() : 0; };
  for (const int64_t length : {8192, 8200}) {
    const auto [q, k, v] = projected(1, 2, length, 8, at::kFloat);
    const at::Tensor d_out = at::randn({1, length, 2, 8}).transpose(1, 2);
    const auto step = [&, q = q, k = k, v = v] {
      const auto [out, lse] = attention_forward(q, k, v, 0.35, dropout_of(1, 0));
      const auto [dq, dk, dv] = parts_of_qkv(attention_backward(d_out, q, k, v, out, lse, 0.35, dropout_of(1, 0)));
      return std::array{out, dq, dk, dv};
    };
    const auto got = step();
    const int64_t before = prepared();
    const auto again = step();
    CHECK(prepared() == before);
    for (size_t i = 0; i < got.size(); ++i) CHECK(again[i].equal(got[i]));

    at::AutoGradMode grad(true);
    const std::array leaves = {wide(q).requires_grad_(true), wide(k).requires_grad_(true),
                               wide(v).requires_grad_(true)};
    const at::Tensor exact = at::scaled_dot_product_attention(leaves[0], leaves[1], leaves[2], {}, 0.0, true, 0.35);
    torch::autograd::backward({exact}, {wide(d_out)});
    check_close(got[0], exact.detach());
    for (size_t i = 0; i < leaves.size(); ++i) check_close(got[i + 1], leaves[i].grad());
  }
}

// Returns attention and its gradients in float64, for q, k and v [1, 1, length, head_dim]. Either each query attends
// only to the keys up to its own position, or a whole matrix of scores is masked: then the values of the other keys
// count with the factor zero.
std::array<at::Tensor, 4> by_definition(const std::array<at::Tensor, 3>& qkv, const at::Tensor& d_out, double scale,
                                        bool whole_matrix) {
  at::AutoGradMode grad(true);
  std::array<at::Tensor, 3> leaves;
  for (size_t i = 0; i < 3; ++i) leaves[i] = wide(qkv[i][0][0]).requires_grad_(true);
  const auto& [q, k, v] = leaves;
  const int64_t length = q.size(0);
  const auto attend = [&](int64_t first, int64_t queries, int64_t keys) {
    const at::Tensor hidden = at::ones({queries, keys}, at::kBool).triu(first + 1);
    const at::Tensor scores = at::matmul(q.narrow(0, first, queries), k.narrow(0, 0, keys).t()) * scale;
    return at::matmul(scores.masked_fill(hidden, -kInfinity).softmax(1), v.narrow(0, 0, keys));
  };
  std::vector<at::Tensor> rows;
  if (whole_matrix)
    rows.push_back(attend(0, length, length));
  else
    for (int64_t i = 0; i < length; ++i) rows.push_back(attend(i, 1, i + 1));
  const at::Tensor out = at::cat(rows);
  torch::autograd::backward({out}, {wide(d_out[0][0])});
  return {out.detach(), q.grad(), k.grad(), v.grad()};
}

TEST_CASE("Infinite scores and NaN values are never hidden, and spread as in float64") {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr int64_t kLength = 70;  // two blocks of queries
  enum { kQuery, kKey, kValue };
  struct Case {
    const char* what;
    size_t tensor;
    int64_t position;
    double entry;
  };
  // Queries and keys are positive elsewhere.
  for (const auto& [what, tensor, position, entry] :
       {Case{"a query that is no number", kQuery, 66, kNan}, Case{"a key that is no number", kKey, 3, kNan},
        Case{"a value that is no number", kValue, 3, kNan}, Case{"a key with infinite scores", kKey, 65, kInfinity},
        Case{"the only key of the first query without weight", kKey, 0, -kInfinity},
        Case{"a query with infinite scores only", kQuery, 66, kInfinity},
        Case{"a query for which no key has weight", kQuery, 66, -kInfinity},
        Case{"an infinite value", kValue, 3, kInfinity}, Case{"a key without weight", kKey, 3, -kInfinity}})
    for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
      CAPTURE(what, type);
      const auto qkv = projected(1, 1, kLength, 4, type);
      for (const size_t positive : {kQuery, kKey}) qkv[positive].abs_();
      qkv[tensor][0][0][position][1] = entry;
      const at::Tensor d_out = at::randn({1, 1, kLength, 4}).to(type);
      const auto least = by_definition(qkv, d_out, 0.5, false), most = by_definition(qkv, d_out, 0.5, true);
      const auto [out, lse] = attention_forward(qkv[0], qkv[1], qkv[2], 0.5, dropout_of(1, 0));
      const auto [dq, dk, dv] =
          parts_of_qkv(attention_backward(d_out, qkv[0], qkv[1], qkv[2], out, lse, 0.5, dropout_of(1, 0)));
      const std::array got = {out, dq, dk, dv};
      bool shows = false;
      for (size_t i = 0; i < got.size(); ++i) {
        CAPTURE(i);
        const at::Tensor mine = wide(got[i][0][0]), finite = mine.isfinite();
        CHECK(!finite.logical_and(least[i].isfinite().logical_not()).any().item<bool>());
        CHECK(!finite.logical_not().logical_and(most[i].isfinite()).any().item<bool>());
        shows |= !finite.all().item<bool>();
        const auto number = [&](const at::Tensor& t) { return t.masked_fill(finite.logical_not(), 0); };
        const double tolerance = type == at::kDouble  ? 1e-12
                                 : type == at::kFloat ? 1e-5
                                 : type == at::kHalf  ? 4e-3
                                                      : 4e-2;
        const double largest = std::max(1.0, number(least[i]).abs().max().item<double>());
        CHECK((number(mine) - number(least[i])).abs().max().item<double>() <= tolerance * largest);
      }
      CHECK(shows);
    }
}

TEST_CASE("Scores beyond the range of fp32 make no finite results") {
  for (const auto type : {at::kFloat, at::kBFloat16})
    for (const double sign : {1, -1}) {
      const auto qkv = projected(1, 1, 70, 4, type);
      qkv[0][0][0][66].fill_(sign * 1e30);
      qkv[1][0][0].fill_(1e30);
      const auto [out, lse] = attention_forward(qkv[0], qkv[1], qkv[2], 1, dropout_of(1, 0));
      CHECK(out[0][0][66].isnan().all().item<bool>());
    }
}

}  // namespace shardline::attention_kernels_test
