#include "tensor_parallel/ops/class_loss.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/tensor_parallel/ranks.h"

#include "tests/catch.h"

namespace shardline::class_loss_test {

TEST_CASE("the loss of classes that are split over ranks equals that of all classes", "[class_loss]") {
  constexpr int64_t kRows = 9, kClasses = 7, kIgnored = -5;
  const double smoothing = GENERATE(0.0, 0.3);
  const int ranks = GENERATE(2, 3, 4);
  const auto logits = at::randn({kRows, kClasses}, at::kDouble) * 30,
             target = at::randint(kClasses, {kRows}, at::kLong);
  target.narrow(0, 2, 3).fill_(kIgnored);
  const auto whole = logits.clone().requires_grad_(true);
  const auto expected = at::cross_entropy_loss(whole, target, {}, at::Reduction::Sum, kIgnored, smoothing);
  torch::autograd::backward({expected * 0.5});
  const double worst = worst_over_ranks(ranks, [&](Communicator& comm) {
    const Range mine = split_range(kClasses, ranks, comm.rank());
    const auto part = logits.narrow(1, mine.begin, mine.length).clone().requires_grad_(true);
    const auto sum = split_cross_entropy_sum({&comm, false}, part, target, {kClasses, mine, kIgnored, smoothing});
    torch::autograd::backward({sum * 0.5});
    return std::vector{difference(sum, expected),
                       difference(part.grad(), whole.grad().narrow(1, mine.begin, mine.length))};
  });
  CHECK(worst < 1e-11);
}

}  // namespace shardline::class_loss_test
