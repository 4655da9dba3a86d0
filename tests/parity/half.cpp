#include "tests/parity/half.h"

#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace shardline::parity {

std::string HalfDistance::exceeds(const HalfDistance& one) const {
  std::string text;
  const auto check = [&](double value, double limit, const char* what) {
    if (!(value <= limit)) text += cat(text.empty() ? "" : ", ", what);  // NaN, too
  };
  const auto within = [](double away) { return 2 * away + 1e-3; };
  check(gradient, within(one.gradient), "gradient");
  check(norm, within(one.norm) + one.gradient / 10, "norm");
  check(loss, within(one.loss), "loss");
  check(copies, 0, "copies");
  return text;
}

HalfDistance half_distance(const Outcome& outcome, const Outcome& exact) {
  HalfDistance distance{.norm = std::abs(outcome.norm - exact.norm) / exact.norm, .copies = outcome.copies_differ};
  double apart = 0, whole = 0;  // squared
  for (const auto& [name, gradient] : exact.gradients) {
    apart += (outcome.gradients.at(name) - gradient).square().sum().item<double>();
    whole += gradient.square().sum().item<double>();
  }
  distance.gradient = std::sqrt(apart / whole);
  for (size_t i = 0; i < exact.losses.size(); ++i) {
    const double loss = std::abs(outcome.losses.at(i) - exact.losses[i]);
    if (!(loss <= distance.loss)) distance.loss = loss;
  }
  return distance;
}

MeasuredHalf measure_half(const Point& point, const Tampering& tampering) {
  Point in_fp32 = point;
  in_fp32.dtype = "float32";
  const Outcome& exact = reference(in_fp32);
  return {point, half_distance(run_point(point, tampering), exact), half_distance(reference(point), exact)};
}

}  // namespace shardline::parity
