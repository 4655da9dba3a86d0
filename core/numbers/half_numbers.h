// The numbers that tensors hold, as our own loops and kernels see them. Half precision is only for storage: loops read
// it into fp32, compute in fp32, and round once, to nearest even, when they write.
#pragma once
#include <bit>
#include <cstdint>

#define SHARDLINE_INLINED __attribute__((always_inline))  // for lambdas, after their parameters
#define SHARDLINE_INLINE SHARDLINE_INLINED inline

namespace shardline {

struct Bf16 {
  uint16_t bits;  // the upper half of an fp32 number
};
struct Fp16 {
  uint16_t bits;  // IEEE binary16
};

// The type in which loops compute.
template <class S>
struct WideOf {
  using type = float;
};
template <>
struct WideOf<double> {
  using type = double;
};
template <class S>
using Wide = typename WideOf<S>::type;

SHARDLINE_INLINE float widen(float x) {
  return x;
}
SHARDLINE_INLINE double widen(double x) {
  return x;
}
SHARDLINE_INLINE float widen(Bf16 x) {
  return std::bit_cast<float>(uint32_t{x.bits} << 16);
}
SHARDLINE_INLINE float widen(Fp16 x) {
  constexpr uint32_t kExponents = 0x38000000u, kSmallestNormal = kExponents + 0x800000u;  // 112 steps; 2^-14
  const uint32_t sign = (x.bits & 0x8000u) << 16;
  const uint32_t size = (x.bits & 0x7fffu) << 13;
  const float tiny = std::bit_cast<float>(size + kSmallestNormal) - std::bit_cast<float>(kSmallestNormal);
  const uint32_t normal = size + (size >= 0x0f800000u ? 2 * kExponents : kExponents);  // not a number: all ones
  return std::bit_cast<float>(sign | (size < 0x800000u ? std::bit_cast<uint32_t>(tiny) : normal));
}

template <class S>
S narrow(Wide<S> x);
template <>
SHARDLINE_INLINE float narrow<float>(float x) {
  return x;
}
template <>
SHARDLINE_INLINE double narrow<double>(double x) {
  return x;
}
template <>
SHARDLINE_INLINE Bf16 narrow<Bf16>(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint16_t stored = x != x ? 0x7fc0u : rounded;
  return {stored};
}
template <>
SHARDLINE_INLINE Fp16 narrow<Fp16>(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x), size = bits & 0x7fffffffu, sign = (bits >> 16) & 0x8000u;
  const uint32_t normal = (size - 0x38000000u + 0xfffu + ((size >> 13) & 1u)) >> 13;
  // Below 2^-14, fp16 numbers are spaced like fp32 numbers at 0.5.
  const uint32_t tiny = std::bit_cast<uint32_t>(std::bit_cast<float>(size) + 0.5f) - std::bit_cast<uint32_t>(0.5f);
  const uint32_t beyond = size > 0x7f800000u ? 0x7e00u : 0x7c00u;  // not a number, or infinite
  const uint32_t in_range = size < 0x38800000u ? tiny : normal;
  const uint16_t stored = sign | (size >= 0x47800000u ? beyond : in_range);
  return {stored};
}

}  // namespace shardline
