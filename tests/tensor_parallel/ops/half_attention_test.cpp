// Attention on half-precision tensors: scores and softmax in fp32, block by block and in torch's fused form; and the
// options that change where it is computed.
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <limits>
#include <vector>

#include "core/model/backward.h"
#include "tensor_parallel/kernels/aten/aten_kernels.h"
#include "tensor_parallel/ops/attention.h"
#include "tensor_parallel/products/products.h"
#include "tests/tensor_parallel/half.h"

#include "tests/catch.h"

namespace shardline::half_attention_test {
namespace {

constexpr int64_t kHeads = 3, kDim = 16;

struct Restore {
  ~Restore() { use_products(ProductLibrary::automatic); }
};

Microbatch batch_of(int64_t samples, int64_t length, int64_t first_position = 0) {
  return causal_microbatch(at::ones({samples, length}, at::kLong), {}, at::arange(samples), first_position);
}

AttentionOptions options() {
  return {.heads = kHeads, .head_dim = kDim, .scale = 0.25, .max_positions = 300};
}

// [batch, heads, length, head_dim] of q, k or v in qkv [tokens, 3 * heads * head_dim]
at::Tensor part_of_qkv(const at::Tensor& qkv, const Microbatch& batch, int64_t part) {
  return qkv.view({batch.segments(), batch.length(), 3, kHeads, kDim}).select(2, part).transpose(1, 2);
}

// Softmax over a masked matrix of scores, with products of queries and keys divided and multiplied as in Megatron.
at::Tensor by_definition(const at::Tensor& qkv, const Microbatch& batch, double scale, double layer = 1) {
  const auto q = part_of_qkv(qkv, batch, 0), k = part_of_qkv(qkv, batch, 1), v = part_of_qkv(qkv, batch, 2);
  const auto future = at::ones({batch.length(), batch.length()}, at::kBool).triu(1);
  const auto stored = at::matmul(q, k.transpose(2, 3)) * (scale / layer);
  const auto scores = (stored * layer).masked_fill(future, -std::numeric_limits<double>::infinity());
  return at::matmul(scores.softmax(-1), v).transpose(1, 2).reshape({batch.tokens(), kHeads * kDim});
}

struct Run {
  at::Tensor y, d_qkv;
};

Run run(const at::Tensor& qkv, const at::Tensor& dy, const Microbatch& batch, const AttentionOptions& o,
        bool recompute = false) {
  const auto leaf = qkv.detach().clone().requires_grad_(true);
  MicrobatchContext context{.batch = &batch, .seed = 3, .step = 5, .recompute_attention = recompute};
  // As in a layer, the result is used by an op that needs it again in its backward pass.
  const auto y = attend(leaf, context, o, [](const at::Tensor& mixed) {
    return with_backward(mixed.detach().clone(), {mixed}, {}, "Use",
                         [](const at::Tensor& d, const SavedTensors&) { return std::vector<at::Tensor>{d}; });
  });
  torch::autograd::backward({y}, {dy});
  return {y.detach(), leaf.grad()};
}

Run exact(const at::Tensor& qkv, const at::Tensor& dy, const Microbatch& batch, const AttentionOptions& o) {
  const auto leaf = wide(qkv).requires_grad_(true);
  const auto y = by_definition(leaf, batch, o.scale, o.score_divisor);
  torch::autograd::backward({y}, {wide(dy)});
  return {y.detach(), leaf.grad()};
}

// Errors in roundings of each array's largest entry. The backward pass uses the rounded result of the forward pass.
double roundings_of_largest(const at::Tensor& got, const at::Tensor& expected) {
  return roundings(got, expected, 0, at::full({}, std::max(1.0, largest(expected))));
}

}  // namespace

TEST_CASE("blockwise attention in half precision equals float64, rounded once, with and without dropout") {
  for (const auto type : kHalfTypes)
    for (const int64_t length : {1, 7, 64, 65, 200})
      for (const double probability : {0.0, 0.3, 1.0}) {
        CAPTURE(type, length, probability);
        const Microbatch batch = batch_of(2, length);
        const auto qkv = normal({batch.tokens(), 3 * kHeads * kDim}, type);
        const auto q = part_of_qkv(qkv, batch, 0), k = part_of_qkv(qkv, batch, 1), v = part_of_qkv(qkv, batch, 2);
        const AttentionDropout dropout{.seed = 5,
                                       .op = 11,
                                       .step = 2,
                                       .probability = probability,
                                       .samples = at::tensor({40, 41}, at::kLong),
                                       .first_head = 3,
                                       .max_positions = 301};
        for (const double divisor : {1.0, 5.0}) {
          const ScoreScale scale(0.7, divisor);
          const auto [out, lse] = attention_forward(q, k, v, scale, dropout);
          const auto [out64, lse64] = aten::attention_forward(wide(q), wide(k), wide(v), 0.7, dropout);
          CHECK(out.scalar_type() == type);
          CHECK(lse.scalar_type() == at::kFloat);
          CHECK(roundings(out, out64, 5e-6) <= 1);
          CHECK(roundings(lse, lse64, 5e-6) <= 1);

          const auto d_out = normal({2, length, kHeads, kDim}, type).transpose(1, 2);
          const auto [dq, dk, dv] = parts_of_qkv(attention_backward(d_out, q, k, v, out, lse, scale, dropout));
          const auto [dq64, dk64, dv64] = parts_of_qkv(
              aten::attention_backward(wide(d_out), wide(q), wide(k), wide(v), wide(out), lse64, 0.7, dropout));
          CHECK(roundings(dq, dq64, 1e-5) <= 1);
          CHECK(roundings(dk, dk64, 1e-5) <= 1);
          CHECK(roundings(dv, dv64, 1e-5) <= 1);

          const auto [torchs, torchs_lse] = aten::attention_forward(q, k, v, scale, dropout);
          CHECK(torchs.scalar_type() == type);
          CHECK(roundings(torchs, out64, 5e-6) <= 1);
          const auto [dqt, dkt, dvt] =
              parts_of_qkv(aten::attention_backward(d_out, q, k, v, out, torchs_lse, scale, dropout));
          CHECK(roundings(dqt, wide(dq), 1e-5) <= 2);
          CHECK(roundings(dkt, wide(dk), 1e-5) <= 2);
          CHECK(roundings(dvt, wide(dv), 1e-5) <= 2);
        }
      }
}

TEST_CASE("causal attention in half precision follows its definition, with this machine's kernels and with ATen") {
  const Restore restore;
  for (const auto kind : {ProductLibrary::automatic, ProductLibrary::aten})
    for (const auto type : kHalfTypes)
      for (const int64_t length : {1, 33, 130})
        for (const bool in_fp32 : {false, true}) {
          use_products(kind);
          CAPTURE(products_in_use(), type, length, in_fp32);
          const Microbatch batch = batch_of(2, length);
          const auto qkv = normal({batch.tokens(), 3 * kHeads * kDim}, type);
          const auto dy = normal({batch.tokens(), kHeads * kDim}, type);
          AttentionOptions o = options();
          o.in_fp32 = in_fp32;
          const Run got = run(qkv, dy, batch, o), expected = exact(qkv, dy, batch, o);
          CHECK(got.y.scalar_type() == type);
          CHECK(got.d_qkv.scalar_type() == type);
          if (in_fp32 || !multiplies_natively(type)) CHECK(roundings(got.y, expected.y, 5e-6) <= 1);
          CHECK(roundings_of_largest(got.y, expected.y) <= 4);
          CHECK(roundings_of_largest(got.d_qkv, expected.d_qkv) <= (in_fp32 ? 2 : 8));

          const Run again = run(qkv, dy, batch, o, true);
          CHECK(again.y.equal(got.y));
          CHECK(again.d_qkv.equal(got.d_qkv));
        }
}

TEST_CASE("query_key_layer_scaling divides the stored scores and changes nothing else") {
  const Microbatch batch = batch_of(2, 70);
  const auto qkv = normal({batch.tokens(), 3 * kHeads * kDim}, at::kDouble);
  const auto dy = normal({batch.tokens(), kHeads * kDim}, at::kDouble);
  for (const double layer : {2.0, 7.0}) {
    AttentionOptions o = options();
    o.score_divisor = layer;
    const Run got = run(qkv, dy, batch, o), expected = exact(qkv, dy, batch, o),
              plain = exact(qkv, dy, batch, options());
    CHECK(roundings(got.y, expected.y, 1e-13) == 0);
    CHECK(roundings(got.d_qkv, expected.d_qkv, 1e-13) == 0);
    CHECK(roundings(expected.y, plain.y, 1e-13) == 0);
  }
}

TEST_CASE("scores beyond the range of fp16 do not change the result") {
  const Microbatch batch = batch_of(1, 40);
  for (const double layer : {1.0, 6.0}) {
    auto qkv = normal({batch.tokens(), 3 * kHeads * kDim}, at::kHalf);
    const auto five = qkv.view({1, 40, 3, kHeads, kDim});
    five.select(2, 0).mul_(300);
    five.select(2, 1).mul_(300);  // products of several hundred thousand
    AttentionOptions o = options();
    o.scale = 1e-4;
    o.score_divisor = layer;
    const auto dy = normal({batch.tokens(), kHeads * kDim}, at::kHalf);
    const Run got = run(qkv, dy, batch, o), expected = exact(qkv, dy, batch, o);
    CHECK(largest(part_of_qkv(qkv, batch, 0)
                      .to(at::kDouble)
                      .matmul(part_of_qkv(qkv, batch, 1).to(at::kDouble).transpose(2, 3))) > 65504);
    CHECK(roundings(got.y, expected.y, 2e-5) <= 1);
    CHECK(roundings_of_largest(got.d_qkv, expected.d_qkv) <= 2);
  }
}

TEST_CASE("half-precision attention over a cache gives the results of a whole pass") {
  for (const auto type : kHalfTypes) {
    const Microbatch whole = batch_of(2, 30);
    const auto qkv = normal({whole.tokens(), 3 * kHeads * kDim}, type);
    const auto expected = by_definition(wide(qkv), whole, options().scale).view({2, 30, -1});
    KvCache cache;
    int64_t first = 0;
    for (const int64_t length : {20, 1, 9}) {
      const Microbatch part = batch_of(2, length, first);
      MicrobatchContext context{.batch = &part, .mode = Mode::generate, .cache = &cache};
      const auto mine = qkv.view({2, 30, -1}).narrow(1, first, length).reshape({2 * length, -1});
      const auto got = self_attention(mine, context, options()).view({2, length, -1});
      CHECK(got.scalar_type() == type);
      CHECK(roundings_of_largest(got, expected.narrow(1, first, length)) <= (multiplies_natively(type) ? 4 : 1.01));
      first += length;
    }
  }
}

}  // namespace shardline::half_attention_test
