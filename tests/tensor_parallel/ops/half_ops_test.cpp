// Compares the split ops in half precision, over ranks, with the whole ones in float64 on the same numbers. Sums over
// ranks were rounded on every rank and are rounded once more; gradients of parameters are fp32 and stay exact.
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include <optional>

#include "tensor_parallel/ops/cross_entropy.h"
#include "tensor_parallel/ops/elementwise.h"
#include "tensor_parallel/ops/embedding.h"
#include "tensor_parallel/ops/linear.h"
#include "tests/tensor_parallel/half.h"
#include "tests/tensor_parallel/ranks.h"

#include "tests/catch.h"

namespace shardline::half_ops_test {
namespace {

constexpr int64_t kUnit = 3, kInput = 40, kHidden = 24;

// Rank t's part of `whole`, in half precision; the gradient is fp32.
Parameter half_parameter(const ParamSpec& spec, const at::Tensor& whole, const TensorParallel& tp) {
  Parameter p = parameter_of(spec, whole, tp.rank(), tp.size());
  p.grad = at::zeros(p.value.sizes());
  return p;
}

// The error of a result that was summed over the ranks, in roundings of sums of this many rounded parts.
double of_sum(const at::Tensor& got, const at::Tensor& exact, const TensorParallel& tp, const at::Tensor& size) {
  return roundings(got, exact, 3e-6, size) / (tp.size() == 1 ? 1.001 : 2.001);
}

struct Linear {
  ParamSpec weight, bias;
  at::Tensor x, w, b, dy;

  static Linear column(int64_t tokens, int64_t units, at::ScalarType type) {
    return {.weight = {.name = "w", .shape = {units, kUnit, kInput}, .split_dim = 0},
            .bias = {.name = "b", .shape = {units, kUnit}, .split_dim = 0},
            .x = normal({tokens, kInput}, type),
            .w = normal({units, kUnit, kInput}, type),
            .b = normal({units, kUnit}, type),
            .dy = normal({tokens, units * kUnit}, type)};
  }
  static Linear row(int64_t tokens, int64_t units, at::ScalarType type) {
    return {.weight = {.name = "w", .shape = {kInput, units, kUnit}, .split_dim = 1},
            .bias = {},
            .x = normal({tokens, units * kUnit}, type),
            .w = normal({kInput, units, kUnit}, type),
            .b = {},
            .dy = normal({tokens, kInput}, type)};
  }
  at::Tensor matrix() const { return wide(w).view({dy.size(1), x.size(1)}); }
  at::Tensor gradient() const { return at::matmul(wide(dy).t(), wide(x)).view(w.sizes()); }
};

at::Tensor features_of(const at::Tensor& whole, const Range& units) {
  return whole.narrow(1, units.begin * kUnit, units.length * kUnit).contiguous();
}

std::vector<double> run_column(const Linear& c, const TensorParallel& tp, WeightGradQueue* queue) {
  const Range units = c.weight.split(tp.rank(), tp.size());
  Parameter w = half_parameter(c.weight, c.w, tp), b = half_parameter(c.bias, c.b, tp);
  const auto x = slice_rows(tp, c.x).detach().requires_grad_(true);
  const auto y = column_linear(tp, x, c.x.size(0), w, &b, queue);
  torch::autograd::backward({y}, {features_of(c.dy, units)});
  if (queue) queue->drain();
  const auto exact = at::matmul(wide(c.x), c.matrix().t()) + wide(c.b).view(-1),
             dx = at::matmul(wide(c.dy), c.matrix());
  const auto size = at::matmul(wide(c.dy).abs(), c.matrix().abs());
  return {unless(y.scalar_type() == c.x.scalar_type()), roundings(y, features_of(exact, units)),
          of_sum(x.grad(), slice_rows(tp, dx), tp, slice_rows(tp, size)),
          roundings(w.grad, part_of(c.weight, c.gradient(), tp.rank(), tp.size())),
          roundings(b.grad, part_of(c.bias, wide(c.dy).sum(0).view(c.bias.shape), tp.rank(), tp.size()))};
}

std::vector<double> run_row(const Linear& c, const TensorParallel& tp, WeightGradQueue* queue) {
  const Range units = c.weight.split(tp.rank(), tp.size());
  Parameter w = half_parameter(c.weight, c.w, tp);
  const auto x = features_of(c.x, units).detach().requires_grad_(true);
  const auto y = row_linear(tp, x, w, queue);
  torch::autograd::backward({y}, {slice_rows(tp, c.dy)});
  if (queue) queue->drain();
  const auto exact = at::matmul(wide(c.x), c.matrix().t());
  const auto size = at::matmul(wide(c.x).abs(), c.matrix().abs().t());
  return {of_sum(y, slice_rows(tp, exact), tp, slice_rows(tp, size)),
          roundings(x.grad(), features_of(at::matmul(wide(c.dy), c.matrix()), units)),
          roundings(w.grad, part_of(c.weight, c.gradient(), tp.rank(), tp.size()))};
}

void check_embedding(at::ScalarType type, std::optional<at::ScalarType> border, int ranks, bool sequence_parallel) {
  CAPTURE(type, ranks, sequence_parallel, border.has_value());
  const int64_t samples = 3, length = 7, words_count = 11;
  const ParamSpec words{.name = "wte", .shape = {words_count, kHidden}, .split_dim = 0};
  const ParamSpec positions{.name = "wpe", .shape = {9, kHidden}, .partial_over_t = sequence_parallel};
  const auto wte = normal(words.shape, type), wpe = normal(positions.shape, type);
  const auto wte64 = wide(wte).requires_grad_(true), wpe64 = wide(wpe).requires_grad_(true);
  const at::Tensor ids = at::randint(words_count, {samples, length}, at::kLong);
  const Microbatch batch = causal_microbatch(ids, {}, {}, 1);
  const auto where = at::arange(1, 1 + length, at::kLong);
  const auto y = (at::embedding(wte64, ids) + at::embedding(wpe64, where)).view({-1, kHidden});
  const auto dy = at::randn(y.sizes()).to(border.value_or(type));
  torch::autograd::backward({y}, {wide(dy)});
  CHECK(worst_over_ranks(ranks, [&](Communicator& comm) {
          const TensorParallel tp{&comm, sequence_parallel};
          Parameter w = half_parameter(words, wte, tp), p = half_parameter(positions, wpe, tp);
          const auto mine = embedding(tp, batch, w, words.split(tp.rank(), ranks).begin, {{.table = &p}}, border);
          torch::autograd::backward({mine}, {slice_rows(tp, dy)});
          if (sequence_parallel) comm.all_reduce(p.grad)->wait();
          return std::vector{unless(mine.scalar_type() == border.value_or(type)),
                             roundings(mine, slice_rows(tp, y.detach()), 0),
                             roundings(w.grad, part_of(words, wte64.grad(), tp.rank(), ranks), 1e-6),
                             roundings(p.grad, wpe64.grad(), 1e-6)};
        }) <= 1.001);
}

// Entries are multiples of a quarter, and small, so logits are exact in every type.
at::Tensor quarters(at::IntArrayRef sizes, at::ScalarType type) {
  return (at::randint(-2, 3, sizes, at::kDouble) / 2).to(type);
}

void check_head(at::ScalarType type, int ranks, bool sequence_parallel) {
  CAPTURE(type, ranks, sequence_parallel);
  constexpr int64_t kSamples = 3, kLength = 121, kVocabulary = 13, kSmall = 5;
  constexpr double kScale = 64;  // like a loss scale
  const at::Tensor labels = at::randint(kVocabulary, {kSamples, kLength}, at::kLong);
  labels[0].narrow(0, 3, 50).fill_(-100);
  const Microbatch batch = causal_microbatch(labels, labels);
  const ParamSpec words{.name = "w", .shape = {kVocabulary, kSmall}, .split_dim = 0};
  const auto x = quarters({kSamples * kLength, kSmall}, type), w = quarters(words.shape, type);
  const auto logits = at::matmul(wide(x), wide(w).t()).requires_grad_(true);
  const auto label = labels.narrow(1, 1, kLength - 1).reshape({-1});
  const auto sum =
      at::cross_entropy_loss(logits.view({kSamples, kLength, -1}).narrow(1, 0, kLength - 1).reshape({-1, kVocabulary}),
                             label, {}, at::Reduction::Sum);
  torch::autograd::backward({sum * kScale});
  const auto g = logits.grad();
  const auto dx = at::matmul(g, wide(w)), dw = at::matmul(g.t(), wide(x));
  const auto dx_size = at::matmul(g.abs(), wide(w).abs()), dw_size = at::matmul(g.abs().t(), wide(x).abs());
  CHECK(worst_over_ranks(ranks, [&](Communicator& comm) {
          const TensorParallel tp{&comm, sequence_parallel};
          Parameter mine = half_parameter(words, w, tp);
          const auto local = slice_rows(tp, x).detach().requires_grad_(true);
          MicrobatchContext context{.batch = &batch, .mode = Mode::train, .loss_scale = kScale};
          const auto loss = head_cross_entropy(tp, local, mine, nullptr, words.split(tp.rank(), ranks).begin, context);
          torch::autograd::backward({loss});
          const double exact = sum.item<double>();
          // The gradient of the logits was rounded to the type; that of w was computed from it in fp32.
          const auto bound = part_of(words, dw_size, tp.rank(), ranks) * roundoff(type) + 1e-4;
          const double of_weight = largest((wide(mine.grad) - part_of(words, dw, tp.rank(), ranks)) / bound);
          return std::vector{unless(loss.scalar_type() == at::kFloat),
                             std::abs(loss.item<double>() - exact * kScale) / (exact * kScale) / 1e-6,
                             std::abs(context.loss.sum - exact) / exact / 1e-6,
                             unless(context.loss.weight == (label != -100).sum().item<double>()),
                             unless(local.grad().scalar_type() == type),
                             roundings(local.grad(), slice_rows(tp, dx), 3e-6, slice_rows(tp, dx_size)) / 3,
                             of_weight};
        }) <= 1);
}

}  // namespace

TEST_CASE("a split linear in half precision rounds its results and not its gradients") {
  for (const auto type : kHalfTypes)
    for (int ranks : {1, 2, 3, 4})
      for (int64_t tokens : {8, 7, 1, 0})
        for (bool sequence_parallel : {false, true})
          for (bool deferred : {false, true}) {
            CAPTURE(type, ranks, tokens, sequence_parallel, deferred);
            const Linear column = Linear::column(tokens, 5, type), row = Linear::row(tokens, 5, type);
            CHECK(worst_over_ranks(ranks, [&](Communicator& comm) {
                    WeightGradQueue queue;
                    return run_column(column, {&comm, sequence_parallel}, deferred ? &queue : nullptr);
                  }) <= 1.001);
            CHECK(worst_over_ranks(ranks, [&](Communicator& comm) {
                    WeightGradQueue queue;
                    return run_row(row, {&comm, sequence_parallel}, deferred ? &queue : nullptr);
                  }) <= 1.001);
          }
}

TEST_CASE("a split embedding works in half precision, with half-precision and with fp32 border tensors") {
  for (const auto type : kHalfTypes)
    for (int ranks : {1, 2, 3})
      for (bool sequence_parallel : {false, true}) {
        check_embedding(type, {}, ranks, sequence_parallel);
        check_embedding(type, at::kFloat, ranks, sequence_parallel);
      }
}

TEST_CASE("the split head has an fp32 softmax, loss and gradient of the words in half precision") {
  for (const auto type : kHalfTypes)
    for (int ranks : {1, 2, 3})
      for (bool sequence_parallel : {false, true}) check_head(type, ranks, sequence_parallel);
}

TEST_CASE("a residual in fp32 passes through half-precision layers without rounding") {
  const int64_t tokens = 7;
  for (const auto type : kHalfTypes)
    for (int ranks : {1, 2, 3})
      for (bool sequence_parallel : {false, true}) {
        CAPTURE(type, ranks, sequence_parallel);
        const ParamSpec spec{.name = "n", .shape = {kHidden}, .partial_over_t = sequence_parallel};
        const auto weight = normal({kHidden}, type), bias = normal({kHidden}, type);
        const auto stream = at::randn({tokens, kHidden}) + 100, branch = normal({tokens, kHidden}, type);
        const auto dy = at::randn({tokens, kHidden}), d_normed = normal({tokens, kHidden}, type);

        const auto x = wide(stream).requires_grad_(true), w = wide(weight).requires_grad_(true);
        const auto normed = std::get<0>(at::native_layer_norm(x, {kHidden}, w, wide(bias), 1e-3));
        const auto y = x + wide(branch) + wide(bias);
        torch::autograd::backward({y, normed}, {wide(dy), wide(d_normed)});

        CHECK(worst_over_ranks(ranks, [&](Communicator& comm) {
                const TensorParallel tp{&comm, sequence_parallel};
                const Microbatch batch =
                    causal_microbatch(at::ones({1, tokens}, at::kLong), {}, at::zeros({1}, at::kLong));
                Parameter scale = half_parameter(spec, weight, tp), shift = half_parameter(spec, bias, tp),
                          added = half_parameter(spec, bias, tp);
                const auto local = slice_rows(tp, stream).detach().requires_grad_(true);
                const auto half_branch = slice_rows(tp, branch).detach().requires_grad_(true);
                const auto out = layer_norm(tp, local, tokens, scale, shift, 1e-3);
                const auto sum = bias_dropout_add(tp, half_branch, tokens, &added, local, {});
                torch::autograd::backward({sum, out}, {slice_rows(tp, dy), slice_rows(tp, d_normed)});
                if (sequence_parallel)
                  for (auto* p : {&scale, &added}) comm.all_reduce(p->grad)->wait();
                const int64_t valid = valid_border_rows(tp, tokens);
                const auto rows = [&](const at::Tensor& t) { return t.narrow(0, 0, valid); };
                const auto exact = [&](const at::Tensor& t) { return rows(slice_rows(tp, t.detach())); };
                return std::vector{unless(sum.scalar_type() == at::kFloat && out.scalar_type() == type),
                                   unless(local.grad().scalar_type() == at::kFloat),
                                   unless(half_branch.grad().scalar_type() == type),
                                   roundings(rows(sum), exact(y), 1e-7),
                                   roundings(rows(out), exact(normed), 1e-4),
                                   roundings(rows(local.grad()), exact(x.grad()), 1e-4),
                                   roundings(rows(half_branch.grad()), exact(wide(dy)), 0),
                                   roundings(scale.grad, w.grad(), 1e-4),
                                   roundings(added.grad, wide(dy).sum(0), 1e-6)};
              }) <= 1.001);
      }
}

}  // namespace shardline::half_ops_test
