#include "optim/update/adam.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>

#include "tests/catch.h"

namespace shardline::adam_test {
namespace {

// torch.optim.AdamW and Adam, by the formulas in their documentation.
struct ByFormula {
  at::Tensor value, m, v;
  int steps = 0;

  void step(at::Tensor g, double rate, double decay, const OptimizerOptions& o) {
    ++steps;
    if (o.kind == OptimizerOptions::Kind::adamw)
      value = value * (1 - rate * decay);
    else
      g = g + decay * value;
    m = o.beta1 * m + (1 - o.beta1) * g;
    v = o.beta2 * v + (1 - o.beta2) * g * g;
    const auto m_hat = m / (1 - std::pow(o.beta1, steps)), v_hat = v / (1 - std::pow(o.beta2, steps));
    value = value - rate * m_hat / (v_hat.sqrt() + o.epsilon);
  }
};

double difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

}  // namespace

TEST_CASE("AdamW and Adam follow torch's formulas, with the range's decay and the clipped gradient") {
  const auto kind = GENERATE(OptimizerOptions::Kind::adamw, OptimizerOptions::Kind::adam);
  const double limit = GENERATE(0.0, 0.5);
  const OptimizerOptions options{
      .kind = kind, .weight_decay = 0.3, .max_gradient_value = limit, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-3};
  for (const auto dtype : {at::kDouble, at::kFloat}) {
    std::vector<TrainedRange> ranges;
    std::vector<ByFormula> exact;
    for (bool decays : {true, false}) {
      const auto value = at::randn({1037}, dtype);
      ranges.push_back({value, at::zeros_like(value), decays});
      const auto wide = value.to(at::kDouble).clone();
      exact.push_back({wide, at::zeros_like(wide), at::zeros_like(wide)});
    }
    Adam optimizer(ranges, options);
    for (int step = 1; step <= 7; ++step) {
      const double rate = 0.01 * step, factor = step % 2 ? 1.0 : 0.25;
      for (size_t i = 0; i < ranges.size(); ++i) {
        const auto gradient = at::randn({1037}, dtype);
        ranges[i].gradients.copy_(gradient);
        auto clipped = gradient.to(at::kDouble) * factor;
        if (limit > 0) clipped = clipped.clamp(-limit, limit);
        exact[i].step(clipped, rate, ranges[i].decays ? 0.3 : 0.0, options);
      }
      optimizer.step(rate, factor);
      for (size_t i = 0; i < ranges.size(); ++i)
        CHECK(difference(ranges[i].values.to(at::kDouble), exact[i].value) <= (dtype == at::kDouble ? 1e-14 : 2e-6));
    }
  }
}

TEST_CASE("a step with a learning rate of zero changes no value, but counts") {
  const auto value = at::randn({5}, at::kDouble), start = value.clone();
  TrainedRange range{value, at::randn({5}, at::kDouble), true};
  Adam optimizer({range}, {.weight_decay = 0.1});
  optimizer.step(0, 1);
  CHECK(difference(value, start) == 0);
  range.gradients.zero_();
  optimizer.step(1e-3, 1);  // the first step's moments exist
  CHECK(difference(value, start) > 1e-5);
}

}  // namespace shardline::adam_test
