#include "tensor_parallel/ops/collectives.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/tensor_parallel/ranks.h"

#include "tests/catch.h"

namespace shardline::collectives_test {

TEST_CASE("rows that are gathered for work on all tokens and sliced again have the gradients of one process") {
  for (int ranks : {1, 2, 3, 4})
    for (int64_t tokens : {8, 7, 2, 1, 0})
      for (bool sequence_parallel : {false, true}) {
        CAPTURE(ranks, tokens, sequence_parallel);
        const auto x = at::randn({tokens, 3}, at::kDouble).requires_grad_(true);
        const auto mix = at::randn({tokens, tokens}, at::kDouble), dy = at::randn({tokens, 3}, at::kDouble);
        const auto y = mix.matmul(x);  // every row needs all rows, as in attention
        torch::autograd::backward({y}, {dy});
        CHECK(worst_over_ranks(ranks, [&](Communicator& comm) {
                const TensorParallel tp{&comm, sequence_parallel};
                const auto mine = slice_rows(tp, x.detach()).detach().requires_grad_(true);
                const auto result = sliced_from_all(tp, mix.matmul(gathered_for_all(tp, mine, tokens)));
                torch::autograd::backward({result}, {slice_rows(tp, dy)});
                return std::vector{difference(result, slice_rows(tp, y.detach())),
                                   difference(mine.grad(), slice_rows(tp, x.grad()))};
              }) <= 1e-13);
      }
}

TEST_CASE("a single rank communicates with no other") {
  const TensorParallel alone;
  const auto x = at::randn({5, 2}, at::kDouble);
  CHECK(gather_rows(alone, x, 5).is_same(x));
  CHECK(reduce_rows(alone, x).is_same(x));
  CHECK(slice_rows(alone, x).is_same(x));
  CHECK(gathered_for_all(alone, x, 5).is_same(x));
  CHECK(sliced_from_all(alone, x).is_same(x));
  CHECK(alone.size() == 1);
}

}  // namespace shardline::collectives_test
