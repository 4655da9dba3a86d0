#include "tensor_parallel/ops/elementwise.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/comm/local_communicator.h"
#include "core/error.h"
#include "tests/tensor_parallel/ranks.h"

#include "tests/catch.h"

namespace shardline::elementwise_test {
namespace {

constexpr int64_t kFeatures = 10;

Microbatch batch_of(std::vector<int64_t> samples, int64_t length) {
  return causal_microbatch(at::ones({std::ssize(samples), length}, at::kLong), {}, at::tensor(samples));
}

// x + dropout of 1 + bias at site 2 of layer 4, and the gradient of what was dropped; border rows.
std::pair<at::Tensor, at::Tensor> drop(const TensorParallel& tp, const Microbatch& batch, const at::Tensor& x,
                                       int64_t step = 7) {
  const ParamSpec spec{.name = "b", .shape = {kFeatures}};
  Parameter bias = parameter_of(spec, at::ones({kFeatures}, at::kDouble), 0, 1);
  const auto local = slice_rows(tp, x).detach();
  const auto branch = at::ones_like(local).requires_grad_(true);
  MicrobatchContext context{.batch = &batch, .seed = 42, .step = step};
  const auto y = bias_dropout_add(tp, branch, batch.tokens(), &bias, local, dropout_rows(tp, context, 4, 2, 0.3));
  torch::autograd::backward({y}, {at::ones_like(y)});
  return {y.detach(), branch.grad()};
}

}  // namespace

TEST_CASE("a dropout mask depends on the sample, not on the rank, the rows or the microbatch") {
  const Microbatch whole = batch_of({0, 1, 2, 3}, 9);
  const auto x = at::randn({whole.tokens(), kFeatures}, at::kDouble);
  const auto world = make_local_world();
  const TensorParallel one{world.get(), false};
  const auto [y, dx] = drop(one, whole, x);
  const double dropped = (dx == 0).to(at::kDouble).mean().item<double>();
  CHECK(dropped == Approx(0.3).margin(0.1));
  CHECK_FALSE(at::equal(drop(one, whole, x, 8).second, dx));

  for (int ranks : {2, 3, 5})  // 36 rows: over 5 ranks, the last one has 4 and padding
    for (bool sequence_parallel : {false, true}) {
      CAPTURE(ranks, sequence_parallel);
      CHECK(worst_over_ranks(ranks, [&, &dx = dx, &y = y](Communicator& comm) {
              const TensorParallel tp{&comm, sequence_parallel};
              const auto [mine, d_mine] = drop(tp, whole, x);
              const int64_t valid = valid_border_rows(tp, whole.tokens());
              return std::vector{difference(mine.narrow(0, 0, valid), slice_rows(tp, y).narrow(0, 0, valid)),
                                 difference(d_mine.narrow(0, 0, valid), slice_rows(tp, dx).narrow(0, 0, valid))};
            }) == 0);
    }
  const auto [first, d_first] = drop(one, batch_of({0}, 9), x.narrow(0, 0, 9));
  const auto [rest, d_rest] = drop(one, batch_of({1, 2, 3}, 9), x.narrow(0, 9, 27));
  CHECK(at::equal(at::cat({first, rest}), y));
  CHECK(at::equal(at::cat({d_first, d_rest}), dx));
}

TEST_CASE("nothing is dropped outside of training") {
  const Microbatch batch = batch_of({0}, 3);
  const auto world = make_local_world();
  MicrobatchContext context{.batch = &batch, .mode = Mode::evaluate};
  CHECK(dropout_rows({world.get(), false}, context, 0, 0, 0.5).probability == 0);
}

TEST_CASE("dropouts of a model never share a stream") {
  CHECK(dropout_op(0, 7) + 1 == dropout_op(1, 0));
  CHECK_THROWS_AS(dropout_op(0, 8), InvariantError);
  CHECK_THROWS_AS(dropout_op(8191, 0), InvariantError);  // this layer would use the stream of initial values
}

TEST_CASE("the parts of a norm's gradients add up to the whole, without padding") {
  const ParamSpec spec{.name = "n", .shape = {kFeatures}, .partial_over_t = true};
  const auto weight = at::randn({kFeatures}, at::kDouble), bias = at::randn({kFeatures}, at::kDouble);
  for (int64_t tokens : {8, 7, 2, 0})
    for (int ranks : {1, 2, 3, 4})
      for (bool sequence_parallel : {false, true}) {
        CAPTURE(tokens, ranks, sequence_parallel);
        const auto x = at::randn({tokens, kFeatures}, at::kDouble).requires_grad_(true);
        const auto w = weight.detach().clone().requires_grad_(true), b = bias.detach().clone().requires_grad_(true);
        const auto y = std::get<0>(at::native_layer_norm(x, {kFeatures}, w, b, 1e-3));
        const auto dy = at::randn(y.sizes(), at::kDouble);
        torch::autograd::backward({y}, {dy});
        CHECK(worst_over_ranks(ranks, [&](Communicator& comm) {
                const TensorParallel tp{&comm, sequence_parallel};
                Parameter mine = parameter_of(spec, weight, 0, 1), shift = parameter_of(spec, bias, 0, 1);
                const auto local = slice_rows(tp, x.detach()).detach().requires_grad_(true);
                const auto out = layer_norm(tp, local, tokens, mine, shift, 1e-3);
                // The contents of padding rows must not matter.
                auto d_out = at::ones_like(out) * 1e6;
                const int64_t valid = valid_border_rows(tp, tokens);
                d_out.narrow(0, 0, valid).copy_(slice_rows(tp, dy).narrow(0, 0, valid));
                torch::autograd::backward({out}, {d_out});
                if (sequence_parallel)
                  for (auto* p : {&mine, &shift}) comm.all_reduce(p->grad)->wait();
                return std::vector{
                    difference(out.narrow(0, 0, valid), slice_rows(tp, y.detach()).narrow(0, 0, valid)),
                    difference(local.grad().narrow(0, 0, valid), slice_rows(tp, x.grad()).narrow(0, 0, valid)),
                    difference(mine.grad, w.grad()), difference(shift.grad, b.grad())};
              }) <= 1e-12);
      }
}

TEST_CASE("an RMS norm follows its definition, and the parts of its gradient add up, without padding") {
  const ParamSpec spec{.name = "n", .shape = {kFeatures}, .partial_over_t = true};
  const auto weight = at::randn({kFeatures}, at::kDouble);
  for (int64_t tokens : {8, 7, 2, 0})
    for (int ranks : {1, 2, 3})
      for (bool sequence_parallel : {false, true}) {
        CAPTURE(tokens, ranks, sequence_parallel);
        const auto x = at::randn({tokens, kFeatures}, at::kDouble).requires_grad_(true);
        const auto w = weight.detach().clone().requires_grad_(true);
        const auto y = x / (x.square().mean(at::IntArrayRef{1}, true) + 1e-3).sqrt() * w;
        const auto dy = at::randn(y.sizes(), at::kDouble);
        torch::autograd::backward({y}, {dy});
        CHECK(worst_over_ranks(ranks, [&](Communicator& comm) {
                const TensorParallel tp{&comm, sequence_parallel};
                Parameter mine = parameter_of(spec, weight, 0, 1);
                const auto local = slice_rows(tp, x.detach()).detach().requires_grad_(true);
                const auto out = rms_norm(tp, local, tokens, mine, 1e-3);
                auto d_out = at::ones_like(out) * 1e6;
                const int64_t valid = valid_border_rows(tp, tokens);
                d_out.narrow(0, 0, valid).copy_(slice_rows(tp, dy).narrow(0, 0, valid));
                torch::autograd::backward({out}, {d_out});
                if (sequence_parallel) comm.all_reduce(mine.grad)->wait();
                return std::vector{
                    difference(out.narrow(0, 0, valid), slice_rows(tp, y.detach()).narrow(0, 0, valid)),
                    difference(local.grad().narrow(0, 0, valid), slice_rows(tp, x.grad()).narrow(0, 0, valid)),
                    difference(mine.grad, w.grad())};
              }) <= 1e-12);
      }
}

TEST_CASE("an RMS norm reads a residual in fp32 and gives half precision to the products") {
  const auto world = make_local_world();
  const TensorParallel one{world.get(), false};
  const ParamSpec spec{.name = "n", .shape = {kFeatures}};
  const auto weight = at::randn({kFeatures}).to(at::kBFloat16);
  Parameter mine{.name = "n", .spec = &spec, .value = weight};
  mine.grad = at::zeros({kFeatures});
  const auto x = at::randn({6, kFeatures}).requires_grad_(true);
  const auto y = rms_norm(one, x, 6, mine, 1e-3);
  CHECK(y.scalar_type() == at::kBFloat16);
  const auto dy = at::randn(y.sizes()).to(at::kBFloat16);
  torch::autograd::backward({y}, {dy});
  CHECK(x.grad().scalar_type() == at::kFloat);

  const auto x64 = x.detach().to(at::kDouble).requires_grad_(true);
  const auto w64 = weight.to(at::kDouble).requires_grad_(true);
  const auto y64 = x64 / (x64.square().mean(at::IntArrayRef{1}, true) + 1e-3).sqrt() * w64;
  torch::autograd::backward({y64}, {dy.to(at::kDouble)});
  CHECK(difference(y.to(at::kDouble), y64) <= 0.02);  // rounded
  CHECK(difference(x.grad().to(at::kDouble), x64.grad()) <= 1e-5);
  CHECK(difference(mine.grad.to(at::kDouble), w64.grad()) <= 1e-5);
}

}  // namespace shardline::elementwise_test
