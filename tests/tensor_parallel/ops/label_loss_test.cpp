#include "tensor_parallel/ops/label_loss.h"

#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "core/comm/local_communicator.h"
#include "tests/tensor_parallel/ranks.h"

#include "tests/catch.h"

namespace shardline::label_loss_test {
namespace {

constexpr double kScale = 0.25;

// For `count` rows: the sum of losses that torch's own function gives, and its weight.
struct Reference {
  at::Tensor sum;  // computed from logits that require a gradient
  double weight = 0;
};

using Loss = std::function<at::Tensor(const TensorParallel&, const at::Tensor& logits, MicrobatchContext&)>;

void check(const at::Tensor& values, const Microbatch& batch, double smoothing,
           const std::function<Reference(const at::Tensor& logits)>& reference, const Loss& loss) {
  const auto whole = values.detach().clone().requires_grad_(true);
  const Reference expected = reference(whole);
  torch::autograd::backward({expected.sum * kScale});
  const double exact = expected.sum.item<double>(), limit = std::max(1.0, exact);
  for (int ranks : {1, 2, 3, 4})
    for (bool sequence_parallel : {false, true}) {
      CAPTURE(ranks, sequence_parallel, values.sizes());
      const double worst = worst_over_ranks(ranks, [&](Communicator& comm) {
        const TensorParallel tp{&comm, sequence_parallel};
        const auto mine = slice_rows(tp, values).detach().requires_grad_(true);
        MicrobatchContext train{.batch = &batch, .loss_scale = kScale, .label_smoothing = smoothing};
        const auto scaled = loss(tp, mine, train);
        torch::autograd::backward({scaled});
        MicrobatchContext evaluate{.batch = &batch, .mode = Mode::evaluate, .label_smoothing = smoothing};
        const auto none = loss(tp, mine.detach(), evaluate);
        return std::vector{std::abs(train.loss.sum - exact) / limit,
                           std::abs(evaluate.loss.sum - exact) / limit,
                           std::abs(scaled.item<double>() - exact * kScale) / limit,
                           unless(train.loss.weight == expected.weight && evaluate.loss.weight == expected.weight),
                           unless(!none.defined()),
                           difference(mine.grad(), slice_rows(tp, whole.grad())),
                           difference(whole_logits(tp, mine, values.size(0)), values)};
      });
      CHECK(worst <= 1e-12);
    }
}

}  // namespace

TEST_CASE("the loss of classes equals torch's without unlabelled rows, with and without smoothing") {
  for (const int64_t rows : {7, 2, 1})
    for (const double smoothing : {0.0, 0.1, 1.0}) {
      auto classes = at::randint(5, {rows}, at::kLong);
      if (rows > 2) classes[1] = classes[rows - 1] = kNoLabel;
      check(
          at::randn({rows, 5}, at::kDouble) * 3, {}, smoothing,
          [&](const at::Tensor& logits) {
            return Reference{at::cross_entropy_loss(logits, classes, {}, at::Reduction::Sum, kNoLabel, smoothing),
                             rows > 2 ? rows - 2.0 : rows};
          },
          [&](const TensorParallel& tp, const at::Tensor& logits, MicrobatchContext& context) {
            return class_loss(tp, logits, rows, classes, context);
          });
    }
}

TEST_CASE("the squared error and the binary cross entropy equal torch's, as means over the labels of a row") {
  for (const int64_t labels : {1, 4}) {
    const int64_t rows = 5;
    const auto values = at::randn({rows, labels}, at::kDouble) * 30;
    const auto numbers = at::randn({rows, labels}, at::kDouble);
    const auto present = at::randint(2, {rows, labels}, at::kDouble);
    const auto of_rows = [&](const at::Tensor& t) {
      return labels == 1 ? t.squeeze(1) : t;
    };  // [rows] is accepted, too
    check(
        values, {}, 0,
        [&](const at::Tensor& logits) {
          return Reference{at::mse_loss(logits, numbers, at::Reduction::Sum) / labels, 1.0 * rows};
        },
        [&](const TensorParallel& tp, const at::Tensor& logits, MicrobatchContext& context) {
          return squared_loss(tp, logits, rows, of_rows(numbers), context);
        });
    check(
        values, {}, 0,
        [&](const at::Tensor& logits) {
          return Reference{at::binary_cross_entropy_with_logits(logits, present, {}, {}, at::Reduction::Sum) / labels,
                           1.0 * rows};
        },
        [&](const TensorParallel& tp, const at::Tensor& logits, MicrobatchContext& context) {
          return binary_loss(tp, logits, rows, of_rows(present), context);
        });
  }
}

TEST_CASE("the classes of an answer are the rows of its segment, and an answer outside of them does not count") {
  // An answer of one row, one elsewhere, one of which only the first row is inside, and one that covers the whole
  // segment.
  const Microbatch batch{
      .ids = at::zeros({12}, at::kLong),
      .targets = at::tensor(std::vector<int64_t>{0, 0, kNoLabel, kNoLabel, 1, 3, 0, 4}, at::kLong).view({4, 2}),
      .ends = {1, 4, 7, 12}};
  check(
      at::randn({12, 2}, at::kDouble) * 5, batch, 0.3,  // answers ignore the smoothing
      [&](const at::Tensor& logits) {
        at::Tensor sum = at::zeros({}, at::kDouble);
        for (const auto& [begin, length, first, last] :
             {std::array<int64_t, 4>{0, 1, 0, 0}, std::array<int64_t, 4>{7, 5, 0, 4}})
          for (const int64_t column : {0, 1})
            sum = sum + at::cross_entropy_loss(logits.narrow(0, begin, length).select(1, column).unsqueeze(0),
                                               at::full({1}, column == 0 ? first : last, at::kLong)) /
                            2;
        return Reference{sum, 2};
      },
      [&](const TensorParallel& tp, const at::Tensor& logits, MicrobatchContext& context) {
        return answer_loss(tp, logits, context);
      });
}

TEST_CASE("losses of half-precision logits are computed in fp32") {
  const auto world = make_local_world();
  const TensorParallel tp{world.get(), false};
  const auto classes = at::randint(5, {6}, at::kLong);
  const auto logits = (at::randn({6, 5}) * 3).to(at::kBFloat16).requires_grad_(true);
  MicrobatchContext context{.loss_scale = kScale};
  const auto loss = class_loss(tp, logits, 6, classes, context);
  torch::autograd::backward({loss});
  CHECK(loss.scalar_type() == at::kFloat);
  CHECK(logits.grad().scalar_type() == at::kBFloat16);
  const auto exact = at::cross_entropy_loss(logits.detach().to(at::kDouble), classes, {}, at::Reduction::Sum);
  CHECK(context.loss.sum == Approx(exact.item<double>()).epsilon(1e-6));
  CHECK(whole_logits(tp, logits, 6).scalar_type() == at::kFloat);
}

TEST_CASE("without rows, the loss and its weight are zero") {
  const auto world = make_local_world();
  const Microbatch batch{.ids = at::zeros({0}, at::kLong), .targets = at::zeros({0, 2}, at::kLong)};
  for (const bool sequence_parallel : {false, true}) {
    const TensorParallel tp{world.get(), sequence_parallel};
    const auto logits = at::zeros({0, 2}).requires_grad_(true);
    MicrobatchContext context{.batch = &batch};
    torch::autograd::backward({class_loss(tp, logits, 0, at::zeros({0}, at::kLong), context)});
    torch::autograd::backward({squared_loss(tp, logits, 0, at::zeros({0, 2}), context)});
    torch::autograd::backward({binary_loss(tp, logits, 0, at::zeros({0, 2}), context)});
    torch::autograd::backward({answer_loss(tp, logits, context)});
    CHECK(context.loss.sum == 0);
    CHECK(context.loss.weight == 0);
  }
}

}  // namespace shardline::label_loss_test
