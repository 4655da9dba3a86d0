#include "optim/update/sgd.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>

#include "tests/catch.h"

namespace shardline::sgd_test {
namespace {

struct Case {
  double momentum, dampening;
  bool nesterov;
};

}  // namespace

TEST_CASE("SGD follows torch's formula: momentum starts with the first gradient and adds dampened ones") {
  const auto c = GENERATE(Case{0, 0, false}, Case{0.9, 0, false}, Case{0.9, 0.3, false}, Case{0.7, 0, true});
  const double decay = GENERATE(0.0, 0.2);
  CAPTURE(c.momentum, c.dampening, c.nesterov, decay);
  const auto start = at::randn({531}, at::kDouble);
  TrainedRange range{start.clone(), at::zeros_like(start), decay > 0};
  Sgd optimizer({range}, {.kind = OptimizerOptions::Kind::sgd,
                          .weight_decay = 0.2,
                          .momentum = c.momentum,
                          .dampening = c.dampening,
                          .nesterov = c.nesterov});
  auto value = start.clone(), momentum = at::zeros_like(start);
  for (int step = 1; step <= 5; ++step) {
    const double rate = 0.1 / step, factor = step == 3 ? 0.25 : 1;
    const auto gradient = at::randn({531}, at::kDouble);
    range.gradients.copy_(gradient);
    optimizer.step(rate, factor);
    const auto g = gradient * factor + decay * value;
    momentum = step == 1 ? g : c.momentum * momentum + (1 - c.dampening) * g;
    value = value - rate * (c.momentum == 0 ? g : c.nesterov ? g + c.momentum * momentum : momentum);
    CHECK((range.values - value).abs().max().item<double>() <= 1e-14);
  }
}

}  // namespace shardline::sgd_test
