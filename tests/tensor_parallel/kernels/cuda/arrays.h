// Arrays for kernels' host twins, without torch, and comparisons of results with float64. An array has exactly the
// bytes that a kernel may access, so that the address sanitizer reports every other access.
#pragma once
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/cuda/twin/grid.h"
#include "core/numbers/half_numbers.h"
#include "tensor_parallel/kernels/cuda/cuda_launches.h"

#include "tests/catch.h"

namespace shardline::testing {

using cuda::Number;

inline constexpr Number kNumbers[] = {Number::fp32, Number::bf16, Number::fp16};
// The types of a layer and of the residual stream.
inline constexpr std::pair<Number, Number> kNumberPairs[] = {{Number::fp32, Number::fp32},
                                                             {Number::bf16, Number::bf16},
                                                             {Number::fp16, Number::fp16},
                                                             {Number::bf16, Number::fp32},
                                                             {Number::fp16, Number::fp32}};

// The largest relative error of rounding to nearest.
inline double rounding_of(Number type) {
  return std::ldexp(1.0, type == Number::fp32 ? -24 : type == Number::bf16 ? -8 : -11);
}

class Array {
 public:
  Array(Number type, int64_t count, double value = 0)
      : type_(type), count_(count), bytes_(new std::byte[count * width()]) {
    for (int64_t i = 0; i < count; ++i) set(i, value);
  }
  static Array random(Number type, int64_t count, unsigned seed, double size = 1) {
    Array array(type, count);
    std::mt19937 generator(seed);
    std::normal_distribution<double> normal(0, size);
    for (int64_t i = 0; i < count; ++i) array.set(i, normal(generator));
    return array;
  }

  int64_t count() const { return count_; }
  Number type() const { return type_; }
  void* data() { return bytes_.get(); }
  const void* data() const { return bytes_.get(); }
  float* floats() { return reinterpret_cast<float*>(bytes_.get()); }

  double operator[](int64_t i) const {
    if (type_ == Number::fp32) return widen(get<float>(i));
    return type_ == Number::bf16 ? widen(get<Bf16>(i)) : widen(get<Fp16>(i));
  }
  void set(int64_t i, double value) {
    const auto x = static_cast<float>(value);
    if (type_ == Number::fp32) return put(i, x);
    if (type_ == Number::bf16) return put(i, narrow<Bf16>(x));
    put(i, narrow<Fp16>(x));
  }
  std::vector<double> values() const {
    std::vector<double> all(count_);
    for (int64_t i = 0; i < count_; ++i) all[i] = (*this)[i];
    return all;
  }
  bool same_bits(const Array& other) const {
    return count_ == other.count_ && std::memcmp(data(), other.data(), count_ * width()) == 0;
  }

 private:
  int64_t width() const { return type_ == Number::fp32 ? 4 : 2; }
  template <class S>
  S get(int64_t i) const {
    S value;
    std::memcpy(&value, bytes_.get() + i * sizeof(S), sizeof(S));
    return value;
  }
  template <class S>
  void put(int64_t i, S value) {
    std::memcpy(bytes_.get() + i * sizeof(S), &value, sizeof(S));
  }

  Number type_;
  int64_t count_;
  std::unique_ptr<std::byte[]> bytes_;
};

// Every element must be within one rounding of the expected one in the array's type, plus `slack` for fp32 arithmetic
// on numbers of size `size`. NaN must match NaN, and infinity infinity.
inline void check_close(const Array& actual, const std::vector<double>& expected, double size, double slack = 2e-6) {
  REQUIRE(actual.count() == static_cast<int64_t>(expected.size()));
  double worst = 0;
  int64_t where = -1;
  for (int64_t i = 0; i < actual.count(); ++i) {
    const double e = expected[i], a = actual[i];
    if ((std::isnan(e) && std::isnan(a)) || e == a) continue;
    const double smallest = actual.type() == Number::fp16 ? std::ldexp(1.0, -25) : 0;  // half a step near zero
    const double error =
        std::fabs(a - e) / (rounding_of(actual.type()) * std::fabs(e) * 1.01 + smallest + slack * size);
    if (!(error <= worst)) {
      worst = error;
      where = i;
      if (std::isnan(error)) break;
    }
  }
  CAPTURE(where, where >= 0 ? actual[where] : 0.0, where >= 0 ? expected[where] : 0.0);
  CHECK(worst <= 1);
}

// Runs a test in both orders of blocks and threads.
inline void in_both_orders(const std::function<void()>& run) {
  for (const auto order : {twin::Order::first_first, twin::Order::last_first}) {
    twin::order = order;
    run();
  }
  twin::order = twin::Order::first_first;
}

}  // namespace shardline::testing
