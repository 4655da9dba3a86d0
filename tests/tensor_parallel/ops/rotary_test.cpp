// Compares rotary position embedding with multiplication by complex numbers of absolute value one.
#include "tensor_parallel/ops/rotary.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <complex>

#include "tensor_parallel/kernels/aten/aten_kernels.h"
#include "tests/tensor_parallel/ranks.h"

#include "tests/catch.h"

namespace shardline::rotary_test {
namespace {

struct Case {
  int64_t samples = 2, length = 7, first = 0, heads = 3, head_dim = 8, features = 6;

  Microbatch batch() const { return causal_microbatch(at::ones({samples, length}, at::kLong), {}, {}, first); }
  std::shared_ptr<const RotaryTable> table() const { return std::make_shared<const RotaryTable>(features, 64); }
  at::Tensor random() const { return at::randn({samples * length, 3 * heads * head_dim}, at::kDouble); }
};

// Treats each pair of features as a complex number, rotated by the angle times `sign`.
at::Tensor turned(const at::Tensor& qkv, const Case& c, double sign) {
  const auto result = qkv.clone();
  auto* x = result.data_ptr<double>();
  for (int64_t token = 0; token < c.samples * c.length; ++token)
    for (int64_t head = 0; head < 2 * c.heads; ++head)
      for (int64_t i = 0; i < c.features; i += 2) {
        double* pair = x + (token * 3 * c.heads + head) * c.head_dim + i;
        const double frequency = std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(c.features));
        const auto angle = sign * static_cast<double>(token % c.length + c.first) * frequency;
        const auto there = std::complex<double>(pair[0], pair[1]) * std::polar(1.0, angle);
        pair[0] = there.real();
        pair[1] = there.imag();
      }
  return result;
}

// Result and gradient of an op on a leaf, followed by something that does not need its value again.
std::pair<at::Tensor, at::Tensor> run(const TensorParallel& tp, const Case& c, const at::Tensor& qkv,
                                      const at::Tensor& dy) {
  const Microbatch batch = c.batch();
  const auto leaf = qkv.clone().requires_grad_(true);
  const auto y = rotated(tp, leaf * 1, batch, c.head_dim, c.table());
  torch::autograd::backward({y}, {dy.clone()});
  return {y.detach(), leaf.grad()};
}

}  // namespace

TEST_CASE("queries and keys are rotated by their positions, and their gradients are rotated back") {
  for (const Case& c :
       {Case{}, Case{.first = 41}, Case{.features = 8}, Case{.features = 2}, Case{.samples = 0}, Case{.heads = 0},
        Case{.samples = 1, .length = 1, .first = 63}, Case{.head_dim = 80, .features = 64}}) {
    CAPTURE(c.samples, c.length, c.first, c.heads, c.features);
    const auto qkv = c.random(), dy = c.random();
    const auto [y, dx] = run({}, c, qkv, dy);
    CHECK(difference(y, turned(qkv, c, 1)) <= 1e-13);
    CHECK(difference(dx, turned(dy, c, -1)) <= 1e-13);  // the transpose of a rotation is its inverse
  }
}

TEST_CASE("the gradient of a rotation equals finite differences") {
  const Case c{.samples = 1, .length = 3, .first = 5, .heads = 1, .head_dim = 4, .features = 2};
  const auto x = c.random(), dy = c.random();
  const Microbatch batch = c.batch();
  const auto value = [&](const at::Tensor& input) {
    return (rotated({}, input.clone(), batch, c.head_dim, c.table()) * dy).sum().item<double>();
  };
  const auto [y, dx] = run({}, c, x, dy);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const auto up = x.clone(), down = x.clone();
    up.view(-1)[i] += 1e-4;
    down.view(-1)[i] -= 1e-4;
    CHECK(dx.view(-1)[i].item<double>() == Approx((value(up) - value(down)) / 2e-4).margin(1e-9));
  }
}

TEST_CASE("a product of query and key depends only on their distance") {
  const Case near{.samples = 1, .length = 5, .heads = 1}, far{.samples = 1, .length = 5, .first = 50, .heads = 1};
  const auto qkv = near.random();
  const auto scores = [&](const Case& c) {
    const auto parts = run({}, c, qkv, qkv).first.view({5, 3, 8});
    return at::matmul(parts.select(1, 0), parts.select(1, 1).t());
  };
  CHECK(difference(scores(near), scores(far)) <= 1e-12);
  const auto before = qkv.view({5, 3, 8});
  CHECK(difference(scores(near), at::matmul(before.select(1, 0), before.select(1, 1).t())) > 0.1);
}

TEST_CASE("a rank's border rows are rotated like the same rows of all tokens") {
  for (const Case& c : {Case{}, Case{.samples = 3, .length = 5, .first = 9}, Case{.samples = 1, .length = 2}})
    for (int ranks : {1, 2, 3, 4}) {
      CAPTURE(ranks, c.samples, c.length);
      const auto qkv = c.random(), dy = c.random();
      const auto [y, dx] = run({}, c, qkv, dy);
      CHECK(worst_over_ranks(ranks, [&](Communicator& comm) {
              const TensorParallel tp{&comm, true};
              const auto [mine, d_mine] = run(tp, c, slice_rows(tp, qkv), slice_rows(tp, dy));
              return std::vector{difference(mine, slice_rows(tp, y)), difference(d_mine, slice_rows(tp, dx))};
            }) == 0);
    }
}

TEST_CASE("half precision is rotated in fp32 and rounded once, and loops and ATen agree") {
  const Case c{.samples = 2, .length = 33, .heads = 5, .head_dim = 40, .features = 24};
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
    CAPTURE(type);
    const auto qkv = c.random().to(type);
    const auto exact = turned(qkv.to(at::kDouble), c, 1);
    const auto [y, dx] = run({}, c, qkv, qkv);
    CHECK(y.scalar_type() == type);
    if (type == at::kBFloat16 || type == at::kHalf)
      CHECK((y != exact.to(type)).sum().item<int64_t>() <= y.numel() / 200);  // fp32 may round to the other side
    else
      CHECK(difference(y.to(at::kDouble), exact) <= (type == at::kFloat ? 2e-6 : 1e-13));

    const auto table = c.table()->for_tensor(qkv);
    CHECK(table.scalar_type() == (type == at::kDouble ? at::kDouble : at::kFloat));
    const auto position = at::ones({66}, at::kLong) * 17;
    for (const bool back : {false, true}) {
      const auto loops = qkv.clone(), aten = qkv.clone();
      rotate_pairs_(loops.view({66, 15, 40}).narrow(1, 0, 10), table, position, back);
      aten::rotate_pairs_(aten.view({66, 15, 40}).narrow(1, 0, 10), table, position, back);
      CHECK(difference(loops.to(at::kDouble), aten.to(at::kDouble)) <= (type == at::kBFloat16 ? 0.04 : 0.005));
      CHECK(at::equal(loops.view({66, 15, 40}).narrow(1, 10, 5), qkv.view({66, 15, 40}).narrow(1, 10, 5)));
    }
  }
}

TEST_CASE("all layers use one table, and no other tensor is made") {
  const auto table = std::make_shared<const RotaryTable>(8, 16);
  const auto like = at::ones({1}, at::kFloat);
  CHECK(table->for_tensor(like).is_same(table->for_tensor(at::ones({2}, at::kHalf))));
  CHECK(!table->for_tensor(like).is_same(table->for_tensor(at::ones({2}, at::kDouble))));
  const Case c{.samples = 1, .length = 4};
  const Microbatch batch = c.batch();
  const auto qkv = c.random();
  const auto y = rotated({}, qkv, batch, c.head_dim, c.table());
  CHECK(y.data_ptr() == qkv.data_ptr());
  CHECK_THROWS(
      rotated({}, at::ones({4, 72}, at::kFloat), causal_microbatch(at::ones({1, 4}, at::kLong), {}, {}, 13), 8, table));
}

}  // namespace shardline::rotary_test
