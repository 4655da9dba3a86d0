// Common code for tests of half-precision ops. Inputs are half-precision numbers, so the exact result is that of
// float64 on the same numbers, and a result that was computed in fp32 and rounded once is within half a step of it.
#pragma once
#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <cmath>

namespace shardline {

constexpr at::ScalarType kHalfTypes[] = {at::kBFloat16, at::kHalf};

inline at::Tensor wide(const at::Tensor& t) {
  return t.defined() ? t.detach().to(at::kDouble, false, true) : t;  // always a copy
}

// Normally distributed numbers in a type, and the same ones in float64.
inline at::Tensor normal(at::IntArrayRef sizes, at::ScalarType type, double scale = 1) {
  return (at::randn(sizes) * scale).to(type);
}

// The largest relative error of rounding to a type.
inline double roundoff(at::ScalarType type) {
  return type == at::kBFloat16 ? std::ldexp(1, -8) : type == at::kHalf ? std::ldexp(1, -11) : std::ldexp(1, -24);
}

inline double largest(const at::Tensor& t) {
  return t.numel() == 0 ? 0 : t.detach().abs().max().item<double>();
}

// The worst error of `got` in roundings of its type, relative to each entry (or to `size`, an array of magnitudes), not
// counting `slack` times the largest entry (at least 1), by which fp32 arithmetic before the rounding may differ.
inline double roundings(const at::Tensor& got, const at::Tensor& exact, double slack = 3e-6,
                        const at::Tensor& size = {}) {
  if (got.sizes() != exact.sizes()) return INFINITY;
  if (got.numel() == 0) return 0;
  const double smallest = got.scalar_type() == at::kHalf ? std::ldexp(1, -14) : 1e-37;  // the smallest normal number
  const auto error = ((wide(got) - exact).abs() - slack * std::max(1.0, largest(exact))).clamp_min(0);
  const auto step = (size.defined() ? size : exact.abs()).clamp_min(smallest) * roundoff(got.scalar_type());
  const double worst = (error / step).max().item<double>();
  return std::isnan(worst) ? INFINITY : worst;
}

}  // namespace shardline
