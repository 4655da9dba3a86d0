#include "tensor_parallel/ops/linear.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/tensor_parallel/ranks.h"

#include "tests/catch.h"

namespace shardline::linear_test {
namespace {

constexpr int64_t kInput = 6, kUnit = 3;

// Inputs of one linear and its expected results, all whole and in double.
struct Case {
  ParamSpec weight, bias;
  at::Tensor x, w, b, dy;
  at::Tensor y, dx, dw, db;

  // Outputs in `units` of kUnit features, dealt to the ranks.
  static Case column(int64_t tokens, int64_t units) {
    Case c;
    c.weight = {.name = "w", .shape = {units, kUnit, kInput}, .split_dim = 0};
    c.bias = {.name = "b", .shape = {units, kUnit}, .split_dim = 0};
    c.fill(tokens, kInput, units * kUnit);
    return c;
  }
  // Inputs in `units` of kUnit features, dealt to the ranks.
  static Case row(int64_t tokens, int64_t units) {
    Case c;
    c.weight = {.name = "w", .shape = {kInput, units, kUnit}, .split_dim = 1};
    c.fill(tokens, units * kUnit, kInput);
    return c;
  }

 private:
  void fill(int64_t tokens, int64_t in, int64_t out) {
    x = at::randn({tokens, in}, at::kDouble);
    w = at::randn(weight.shape, at::kDouble);
    b = bias.shape.empty() ? at::Tensor() : at::randn(bias.shape, at::kDouble);
    dy = at::randn({tokens, out}, at::kDouble);
    y = at::matmul(x, w.view({out, in}).t());
    if (b.defined()) y = y + b.view(-1);
    dx = at::matmul(dy, w.view({out, in}));
    dw = at::matmul(dy.t(), x).view(weight.shape);
    db = dy.sum(0);
  }
};

// The features [tokens, unit * kUnit] of this rank's units.
at::Tensor features_of(const at::Tensor& whole, const Range& units) {
  return whole.narrow(1, units.begin * kUnit, units.length * kUnit).contiguous();
}

std::vector<double> run_column(const Case& c, const TensorParallel& tp, WeightGradQueue* queue) {
  const Range units = c.weight.split(tp.rank(), tp.size());
  Parameter w = parameter_of(c.weight, c.w, tp.rank(), tp.size()), b = parameter_of(c.bias, c.b, tp.rank(), tp.size());
  const auto x = slice_rows(tp, c.x).detach().requires_grad_(true);
  const auto y = column_linear(tp, x, c.x.size(0), w, &b, queue);
  torch::autograd::backward({y}, {features_of(c.dy, units)});
  std::vector<double> differences = {difference(y, features_of(c.y, units)),
                                     difference(x.grad(), slice_rows(tp, c.dx))};
  if (queue && !queue->immediate) {
    differences.push_back(unless(!queue->empty()));
    differences.push_back(difference(w.grad, at::zeros_like(w.grad)));
    queue->drain();
    differences.push_back(unless(queue->empty()));
  }
  differences.push_back(difference(w.grad, part_of(c.weight, c.dw, tp.rank(), tp.size())));
  differences.push_back(difference(b.grad, part_of(c.bias, c.db.view(c.bias.shape), tp.rank(), tp.size())));
  return differences;
}

std::vector<double> run_row(const Case& c, const TensorParallel& tp, WeightGradQueue* queue) {
  const Range units = c.weight.split(tp.rank(), tp.size());
  Parameter w = parameter_of(c.weight, c.w, tp.rank(), tp.size());
  const auto x = features_of(c.x, units).detach().requires_grad_(true);
  const auto y = row_linear(tp, x, w, queue);
  torch::autograd::backward({y}, {slice_rows(tp, c.dy)});
  std::vector<double> differences = {difference(y, slice_rows(tp, c.y)),
                                     difference(x.grad(), features_of(c.dx, units))};
  if (queue && !queue->immediate) {
    differences.push_back(difference(w.grad, at::zeros_like(w.grad)));
    queue->drain();
  }
  differences.push_back(difference(w.grad, part_of(c.weight, c.dw, tp.rank(), tp.size())));
  return differences;
}

}  // namespace

TEST_CASE("a split linear equals the whole one, for sizes that T does not divide") {
  // 5 units over 3 ranks, 2 over 4 (two ranks have none); 7 tokens over 2, 3 and 4 ranks, 2 over 4, and none at all.
  for (int ranks : {1, 2, 3, 4})
    for (int64_t units : {5, 2})
      for (int64_t tokens : {8, 7, 2, 1, 0})
        for (bool sequence_parallel : {false, true})
          for (bool deferred : {false, true}) {
            CAPTURE(ranks, units, tokens, sequence_parallel, deferred);
            const Case column = Case::column(tokens, units), row = Case::row(tokens, units);
            CHECK(worst_over_ranks(ranks, [&](Communicator& comm) {
                    WeightGradQueue queue;
                    return run_column(column, {&comm, sequence_parallel}, deferred ? &queue : nullptr);
                  }) <= 1e-13);
            CHECK(worst_over_ranks(ranks, [&](Communicator& comm) {
                    WeightGradQueue queue;
                    return run_row(row, {&comm, sequence_parallel}, deferred ? &queue : nullptr);
                  }) <= 1e-13);
          }
}

TEST_CASE("a deferred weight gradient has the bits of an immediate one") {
  const Case c = Case::column(37, 5);
  const auto gradients = [&](bool immediate) {
    std::vector<at::Tensor> result;
    run_ranks(1, [&](CommunicatorPtr world) {
      const TensorParallel tp{world.get(), false};
      Parameter w = parameter_of(c.weight, c.w, 0, 1), b = parameter_of(c.bias, c.b, 0, 1);
      for (auto* part : {&w, &b}) part->value = part->value.to(at::kFloat), part->grad = part->grad.to(at::kFloat);
      std::vector<WeightGradQueue> queues(3);  // microbatches, drained in their order
      for (auto& queue : queues) {
        queue.immediate = immediate;
        const auto x = (c.x * static_cast<double>(1 + (&queue - queues.data()))).to(at::kFloat).requires_grad_(true);
        const auto y = column_linear(tp, x, x.size(0), w, &b, &queue);
        torch::autograd::backward({y}, {c.dy.to(at::kFloat)});
      }
      for (auto& queue : queues) queue.drain();
      result = {w.grad, b.grad};
    });
    return result;
  };
  const auto deferred = gradients(false), immediate = gradients(true);
  CHECK(at::equal(deferred[0], immediate[0]));
  CHECK(at::equal(deferred[1], immediate[1]));
  CHECK(deferred[0].abs().max().item<double>() > 0);
}

TEST_CASE("a frozen linear has only an input gradient") {
  const Case c = Case::column(4, 2);
  CHECK(worst_over_ranks(2, [&](Communicator& comm) {
          const TensorParallel tp{&comm, true};
          Parameter w = parameter_of(c.weight, c.w, tp.rank(), 2), b = parameter_of(c.bias, c.b, tp.rank(), 2);
          w.grad = b.grad = at::Tensor();
          const auto x = slice_rows(tp, c.x).detach().requires_grad_(true);
          const auto y = column_linear(tp, x, 4, w, &b, nullptr);
          torch::autograd::backward({y}, {features_of(c.dy, c.weight.split(tp.rank(), 2))});
          return std::vector{difference(x.grad(), slice_rows(tp, c.dx)), unless(!w.grad.defined())};
        }) <= 1e-13);
}

}  // namespace shardline::linear_test
