#include "tensor_parallel/ops/attention.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>

#include "core/model/backward.h"
#include "tests/tensor_parallel/ranks.h"

#include "tests/catch.h"

namespace shardline::attention_test {
namespace {

constexpr int64_t kDim = 4;

Microbatch batch_of(int64_t samples, int64_t length, int64_t first_position = 0) {
  return causal_microbatch(at::ones({samples, length}, at::kLong), {}, at::arange(samples), first_position);
}

AttentionOptions options(int64_t heads) {
  return {.heads = heads, .head_dim = kDim, .scale = 0.7, .max_positions = 40};
}

// Softmax over a masked matrix of scores; qkv [tokens, 3 * heads * kDim].
at::Tensor by_definition(const at::Tensor& qkv, const Microbatch& batch, const AttentionOptions& o) {
  const int64_t n = batch.length();
  const auto five = qkv.view({batch.segments(), n, 3, o.heads, kDim}).permute({2, 0, 3, 1, 4});
  auto hidden = at::ones({n, n}, at::kBool).triu(1);
  if (o.window > 0) hidden = hidden.logical_or(at::ones({n, n}, at::kBool).tril(-o.window));
  const auto scores = (at::matmul(five[0], five[1].transpose(2, 3)) * o.scale)
                          .masked_fill(hidden, -std::numeric_limits<double>::infinity());
  return at::matmul(scores.softmax(-1), five[2]).transpose(1, 2).reshape({batch.tokens(), o.heads * kDim});
}

// The columns of heads [first, first + count) of qkv [tokens, 3 * heads * kDim].
at::Tensor heads_of(const at::Tensor& qkv, int64_t heads, int64_t first, int64_t count) {
  return qkv.view({-1, 3, heads, kDim}).narrow(2, first, count).reshape({-1, 3 * count * kDim});
}

}  // namespace

TEST_CASE("causal attention follows its definition, forward and backward") {
  for (int64_t heads : {1, 3})
    for (const auto& [length, window] : {std::pair<int64_t, int64_t>{1, 0}, {5, 0}, {33, 0}, {33, 6}}) {
      CAPTURE(heads, length, window);
      AttentionOptions o = options(heads);
      o.window = window;
      const Microbatch batch = batch_of(2, length);
      const auto qkv = at::randn({batch.tokens(), 3 * heads * kDim}, at::kDouble).requires_grad_(true);
      const auto same = qkv.detach().clone().requires_grad_(true);
      const auto dy = at::randn({batch.tokens(), heads * kDim}, at::kDouble);
      MicrobatchContext context{.batch = &batch};
      const auto got = self_attention(qkv, context, o);
      const auto expected = by_definition(same, batch, o);
      torch::autograd::backward({got}, {dy});
      torch::autograd::backward({expected}, {dy});
      CHECK(difference(got, expected) <= 1e-13);
      CHECK(difference(qkv.grad(), same.grad()) <= 1e-13);
    }
}

TEST_CASE("recomputed attention gives the same bits, and frees its result in between") {
  for (const double dropout : {0.0, 0.3})
    for (const auto type : {at::kFloat, at::kDouble})
      for (int64_t samples : {0, 2}) {
        CAPTURE(dropout, type, samples);
        const Microbatch batch = batch_of(samples, 33);
        const auto qkv = at::randn({batch.tokens(), 3 * 3 * kDim}, type);
        const auto dy = at::randn({batch.tokens(), 3 * kDim}, type);
        AttentionOptions o = options(3);
        o.dropout = dropout;
        std::vector<at::Tensor> results, gradients, seen;
        for (const bool recompute : {false, true}) {
          MicrobatchContext context{.batch = &batch, .recompute_attention = recompute};
          const auto leaf = qkv.clone().requires_grad_(true);
          at::Tensor held;
          const auto y = attend(leaf, context, o, [&](const at::Tensor& mixed) {
            held = mixed.detach();
            return with_backward(held * 2, {mixed}, {held}, "Use", [&](const at::Tensor& d, const SavedTensors& saved) {
              seen.push_back(saved[0].clone());
              return std::vector<at::Tensor>{d * 2};
            });
          });
          if (samples > 0) CHECK((held.storage().data() == nullptr) == recompute);
          torch::autograd::backward({y}, {dy});
          results.push_back(y.detach());
          gradients.push_back(leaf.grad());
        }
        CHECK(at::equal(results[0], results[1]));
        CHECK(at::equal(gradients[0], gradients[1]));
        CHECK(at::equal(seen[0], seen[1]));
      }
}

TEST_CASE("ranks without heads and empty microbatches have empty attention") {
  for (const auto& [samples, heads] : {std::pair{int64_t{2}, int64_t{0}}, {int64_t{0}, int64_t{3}}}) {
    const Microbatch batch = batch_of(samples, 5);
    const auto qkv = at::randn({batch.tokens(), 3 * heads * kDim}, at::kDouble).requires_grad_(true);
    MicrobatchContext context{.batch = &batch};
    const auto y = self_attention(qkv, context, options(heads));
    CHECK(y.sizes() == at::IntArrayRef({batch.tokens(), heads * kDim}));
    torch::autograd::backward({y}, {y.detach()});
    CHECK(qkv.grad().sizes() == qkv.sizes());
  }
}

TEST_CASE("attention over a cache gives the results of a whole pass, however the positions are divided") {
  const Microbatch whole = batch_of(2, 70);  // longer than the cache's first capacity
  const auto qkv = at::randn({whole.tokens(), 3 * 2 * kDim}, at::kDouble);
  const auto at_positions = [](const at::Tensor& rows, int64_t first, int64_t length) {
    return rows.view({2, 70, -1}).narrow(1, first, length);
  };
  for (const int64_t window : {0, 6}) {
    AttentionOptions o = options(2);
    o.window = window;
    const auto expected = by_definition(qkv, whole, o);
    for (const std::vector<int64_t>& cuts :
         {std::vector<int64_t>{70}, {5, 3, 1, 1, 60}, {1, 69}, {63, 1, 1, 5}, {6, 1, 1, 62}}) {
      KvCache cache;
      int64_t first = 0;
      for (const int64_t length : cuts) {
        CAPTURE(window, first, length);
        const Microbatch part = batch_of(2, length, first);
        MicrobatchContext context{.batch = &part, .mode = Mode::generate, .cache = &cache};
        const auto mine = at_positions(qkv, first, length).reshape({2 * length, -1});
        const auto got = self_attention(mine, context, o).view({2, length, -1});
        CHECK(difference(got, at_positions(expected, first, length)) <= 1e-13);
        first += length;
        CHECK(cache.length() == first);
      }
    }
  }
}

TEST_CASE("segments of several lengths have the attention and the dropout of separate samples") {
  const std::vector<int64_t> lengths = {5, 1, 33};
  const auto qkv = at::randn({39, 3 * 2 * kDim}, at::kDouble), dy = at::randn({39, 2 * kDim}, at::kDouble);
  Microbatch ragged{.ids = at::ones({39}, at::kLong),
                    .segment_samples = at::tensor({4, 2, 9}, at::kLong),
                    .segment_places = at::zeros({3}, at::kLong)};
  for (int64_t end = 0; const int64_t length : lengths) ragged.ends.push_back(end += length);
  for (const bool causal : {true, false})
    for (const double dropout : {0.0, 0.3}) {
      CAPTURE(causal, dropout);
      AttentionOptions o = options(2);
      o.causal = causal;
      o.dropout = dropout;
      const auto run = [&](const Microbatch& batch, const at::Tensor& input, const at::Tensor& d_output) {
        const auto x = input.detach().clone().requires_grad_(true);
        MicrobatchContext context{.batch = &batch, .mode = Mode::train, .seed = 3, .step = 5};
        const auto y = self_attention(x, context, o);
        torch::autograd::backward({y}, {d_output});
        return std::pair{y.detach(), x.grad()};
      };
      const auto [y, dx] = run(ragged, qkv, dy);
      for (int64_t i = 0, begin = 0; i < 3; begin += lengths[i++]) {
        const auto part = [&, begin](const at::Tensor& t) { return t.narrow(0, begin, lengths[i]).contiguous(); };
        const Microbatch alone =
            causal_microbatch(at::ones({1, lengths[i]}, at::kLong), {}, ragged.segment_samples.narrow(0, i, 1));
        const auto [one, d_one] = run(alone, part(qkv), part(dy));
        CHECK(difference(part(y), one) <= 1e-14);
        CHECK(difference(part(dx), d_one) <= 1e-14);
      }
    }
}

TEST_CASE("dropout of attention depends on sample and head, not on the rank or the microbatch") {
  const Microbatch whole = batch_of(3, 9);
  const auto qkv = at::randn({whole.tokens(), 3 * 5 * kDim}, at::kDouble);
  const auto dy = at::randn({whole.tokens(), 5 * kDim}, at::kDouble);
  const auto run = [](const at::Tensor& input, const at::Tensor& d_output, const Microbatch& batch, int64_t first_head,
                      int64_t heads, Mode mode) {
    auto o = options(heads);
    o.dropout = 0.4;
    o.first_head = first_head;
    o.dropout_op = 17;
    const auto x = input.detach().clone().requires_grad_(true);
    MicrobatchContext context{.batch = &batch, .mode = mode, .seed = 3, .step = 5};
    const auto y = self_attention(x, context, o);
    torch::autograd::backward({y}, {d_output});
    return std::pair{y.detach(), x.grad()};
  };
  const auto [y, dx] = run(qkv, dy, whole, 0, 5, Mode::train);
  CHECK(difference(y, by_definition(qkv, whole, options(5))) > 0.1);  // something was dropped
  const auto [kept, unused] = run(qkv, dy, whole, 0, 5, Mode::evaluate);
  CHECK(difference(kept, by_definition(qkv, whole, options(5))) <= 1e-13);

  for (const auto& [first, count] : {std::pair{int64_t{0}, int64_t{3}}, {int64_t{3}, int64_t{2}}}) {  // over two ranks
    const auto [part, d_part] =
        run(heads_of(qkv, 5, first, count), dy.narrow(1, first * kDim, count * kDim).contiguous(), whole, first, count,
            Mode::train);
    CHECK(difference(part, y.narrow(1, first * kDim, count * kDim)) <= 1e-14);
    CHECK(difference(d_part, heads_of(dx, 5, first, count)) <= 1e-14);
  }
  const Microbatch second = part_of(whole, {1, 2});  // samples 1 and 2 as a microbatch of their own
  const auto [later, d_later] = run(qkv.narrow(0, 9, 18), dy.narrow(0, 9, 18).contiguous(), second, 0, 5, Mode::train);
  CHECK(difference(later, y.narrow(0, 9, 18)) <= 1e-14);
  CHECK(difference(d_later, dx.narrow(0, 9, 18)) <= 1e-14);
}

}  // namespace shardline::attention_test
