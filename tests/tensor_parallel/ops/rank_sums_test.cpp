#include "tensor_parallel/ops/rank_sums.h"

#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/tensor_parallel/ranks.h"

#include "tests/catch.h"

namespace shardline::rank_sums_test {

TEST_CASE("a product over columns that are split over ranks equals the whole product", "[rank_sums]") {
  const auto x = at::randn({4, 5}, at::kDouble), w = at::randn({5, 7}, at::kDouble), v = at::randn({7, 2}, at::kDouble);
  const auto whole = x.clone().requires_grad_(true);
  const auto expected = whole.matmul(w).tanh().matmul(v);
  torch::autograd::backward({expected.square().sum()});
  const double worst = worst_over_ranks(3, [&](Communicator& comm) {
    const TensorParallel tp{&comm, false};
    const Range mine = split_range(7, 3, comm.rank());
    const auto input = x.clone().requires_grad_(true);
    const auto columns = enter_ranks(tp, input).matmul(w.narrow(1, mine.begin, mine.length)).tanh();
    const auto y = add_over_ranks(tp, columns.matmul(v.narrow(0, mine.begin, mine.length)));
    torch::autograd::backward({y.square().sum()});
    return std::vector{difference(y, expected), difference(input.grad(), whole.grad())};
  });
  CHECK(worst < 1e-12);
}

TEST_CASE("a dimension is gathered from the parts of the ranks", "[rank_sums]") {
  const auto whole = at::randn({2, 5}, at::kDouble);
  const double worst = worst_over_ranks(2, [&](Communicator& comm) {
    const auto places = comm.rank() == 0 ? at::tensor({0, 3, 4}, at::kLong) : at::tensor({1, 2}, at::kLong);
    return std::vector{
        difference(gathered_dimension({&comm, false}, whole.index_select(1, places), 1, 5, places), whole)};
  });
  CHECK(worst == 0);
}

}  // namespace shardline::rank_sums_test
