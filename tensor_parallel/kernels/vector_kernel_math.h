// What the vectorised loops share: how they are compiled, functions of one number that the compiler turns into vector
// code, and sums along a row. The float versions are within 3 units in the last place of the exact value, relative to
// the larger of it and the function's scale (1 for tanh, sigmoid and the normal distribution).
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/numbers/half_numbers.h"

// Compiles a function once for each vector width; the loader picks one for the processor. The function must be plain
// (no template, no lambda), and everything it calls must be SHARDLINE_INLINE. Disabled with sanitizers, which run
// before the loader can pick.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define SHARDLINE_VECTORISED __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define SHARDLINE_VECTORISED
#endif

namespace shardline {

// e^x; 0 below the range of normal numbers, at most 2.4e38.
SHARDLINE_INLINE float exponential(float x) {
  constexpr float kLog2E = 1.44269504f, kLn2High = 0.693145752f, kLn2Low = 1.42860677e-6f;
  constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the last bits
  const float bounded = x > 88.37f ? 88.37f : (x < -87.33f ? -87.33f : x);
  const float shifted = bounded * kLog2E + kRounder;
  const float whole = shifted - kRounder;
  const float r = (bounded - whole * kLn2High) - whole * kLn2Low;  // |r| <= ln 2 / 2
  float p = 0.00139506289f;
  p = p * r + 0.00836896989f;
  p = p * r + 0.0416662022f;
  p = p * r + 0.166665182f;
  p = p * r + 0.5f;
  p = p * (r * r) + r + 1.0f;
  const float power = std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) << 23) + 0x3f800000u);  // 2^whole
  return x < -87.33f ? 0.0f : p * power;
}
SHARDLINE_INLINE double exponential(double x) {
  return std::exp(x);
}

template <class T>
SHARDLINE_INLINE T logistic(T x) {
  return T(1) / (T(1) + exponential(-x));
}

SHARDLINE_INLINE float hyperbolic_tangent(float x) {
  const float size = std::fabs(x), s = x * x;
  float p = 0.00212274259f;
  p = p * s - 0.00815627631f;
  p = p * s + 0.0216926057f;
  p = p * s - 0.0539453775f;
  p = p * s + 0.133331954f;
  p = p * s - 0.333333313f;
  const float near_zero = x + x * s * p;
  const float far = std::copysign(1.0f - 2.0f / (exponential(2.0f * size) + 1.0f), x);
  return size < 0.625f ? near_zero : far;
}
SHARDLINE_INLINE double hyperbolic_tangent(double x) {
  return std::tanh(x);
}

// The standard normal distribution: density, and probability below x.
template <class T>
struct Normal {
  T density, below;
};
SHARDLINE_INLINE Normal<float> standard_normal(float x) {
  const float size = std::fabs(x);
  const float bell = exponential(-0.5f * x * x);
  // erfc(a) e^(a^2) as a polynomial in t = 1 / (1 + 0.4 a), a = |x| / sqrt(2)
  const float t = 1.0f / (1.0f + 0.282842712f * size);
  float p = 0.0313802548f;
  p = p * t - 0.0921212286f;
  p = p * t - 0.0159571469f;
  p = p * t + 0.202612609f;
  p = p * t + 0.000424396218f;
  p = p * t + 0.227195084f;
  p = p * t + 0.193253413f;
  p = p * t + 0.22764872f;
  p = p * t + 0.225563914f;
  const float tail = 0.5f * bell * p * t;
  return {0.398942280f * bell, x < 0.0f ? tail : 1.0f - tail};
}
SHARDLINE_INLINE Normal<double> standard_normal(double x) {
  constexpr double kHalfRoot = 0.70710678118654752440, kDensityAtZero = 0.39894228040143267794;
  return {kDensityAtZero * std::exp(-0.5 * x * x), 0.5 * (1 + std::erf(x * kHalfRoot))};
}

// Sum of term(i) for i < n, in an order that depends only on n.
template <class T, class Term>
SHARDLINE_INLINE T ordered_sum(int64_t n, const Term& term) {
  const int64_t quarter = n / 4;
  T a = 0, b = 0, c = 0, d = 0;
#pragma omp simd reduction(+ : a, b, c, d)
  for (int64_t i = 0; i < quarter; ++i) {
    a += term(i);
    b += term(quarter + i);
    c += term(2 * quarter + i);
    d += term(3 * quarter + i);
  }
  T sum = (a + b) + (c + d);
  for (int64_t i = 4 * quarter; i < n; ++i) sum += term(i);
  return sum;
}

}  // namespace shardline
