#include "tensor_parallel/ops/picked_rows.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/tensor_parallel/ranks.h"

#include "tests/catch.h"

namespace shardline::picked_rows_test {
namespace {

constexpr int64_t kHidden = 3;

at::Tensor index(std::vector<int64_t> rows) {
  return at::tensor(rows, at::kLong);
}

void check(int64_t tokens, const at::Tensor& rows, int ranks, bool sequence_parallel) {
  CAPTURE(tokens, rows.numel(), ranks, sequence_parallel);
  const auto x = at::randn({tokens, kHidden}, at::kDouble), dy = at::randn({rows.numel(), kHidden}, at::kDouble);
  const auto y = x.index_select(0, rows);
  auto dx = at::zeros_like(x);
  dx.index_copy_(0, rows, dy);
  const double worst = worst_over_ranks(ranks, [&](Communicator& comm) {
    const TensorParallel tp{&comm, sequence_parallel};
    const auto mine = slice_rows(tp, x).detach().requires_grad_(true);
    const auto picked = picked_rows(tp, mine, tokens, rows);
    torch::autograd::backward({picked}, {slice_rows(tp, dy)});
    return std::vector{difference(picked, slice_rows(tp, y)), difference(mine.grad(), slice_rows(tp, dx))};
  });
  CHECK(worst == 0);
}

}  // namespace

TEST_CASE("selected rows are distributed like all rows, and only they have a gradient") {
  for (int ranks : {1, 2, 3, 4})
    for (bool sequence_parallel : {false, true}) {
      check(11, index({0, 4, 5, 10}), ranks, sequence_parallel);
      check(11, index({10}), ranks, sequence_parallel);  // fewer than ranks
      check(11, index({}), ranks, sequence_parallel);
      check(2, index({0, 1}), ranks, sequence_parallel);  // ranks without a row
      check(0, index({}), ranks, sequence_parallel);
    }
}

TEST_CASE("rows are selected by segments and by labels") {
  const Microbatch batch{
      .ids = at::zeros({6}, at::kLong), .labels = index({kNoLabel, 0, kNoLabel, 3, 1, kNoLabel}), .ends = {1, 4, 6}};
  CHECK(at::equal(first_rows(batch), index({0, 1, 4})));
  CHECK(at::equal(last_rows(batch), index({0, 3, 5})));
  CHECK(at::equal(labelled_rows(batch, 1), index({1, 3, 4})));
  CHECK(count_of_rows(batch, {}) == 6);
  CHECK(count_of_rows(batch, index({1, 2})) == 2);
  CHECK(at::equal(values_of_rows(batch.labels, index({3, 4})), index({3, 1})));
  Microbatch unlabelled = batch;
  unlabelled.labels = at::Tensor();
  CHECK(labelled_rows(unlabelled, 1).numel() == 0);
  const Microbatch empty{.ids = at::zeros({0}, at::kLong)};
  CHECK(first_rows(empty).numel() == 0);
}

}  // namespace shardline::picked_rows_test
