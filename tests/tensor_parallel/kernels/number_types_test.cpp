#include "tensor_parallel/kernels/number_types.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cmath>
#include <limits>
#include <random>

#include "tests/catch.h"

namespace shardline::number_types_test {
namespace {

template <class Ours, class Torchs>
bool is_same(Ours ours, Torchs torchs) {
  const float value = static_cast<float>(torchs);
  return std::isnan(value) ? std::isnan(widen(ours)) : ours.bits == torchs.x;
}

template <class Ours, class Torchs>
bool rounds_as_torch(float x) {
  return is_same(narrow<Ours>(x), Torchs(x));
}

}  // namespace

TEST_CASE("every half-precision number is read as by torch, and written back unchanged") {
  int64_t wrong = 0;
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const float bf16 = c10::BFloat16(bits, c10::BFloat16::from_bits()), fp16 = c10::Half(bits, c10::Half::from_bits());
    const float ours = widen(Bf16{bits}), ours16 = widen(Fp16{bits});
    const auto same = [](float a, float b) {
      return std::isnan(a) ? std::isnan(b) : std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
    };
    wrong += !same(bf16, ours) || (!std::isnan(ours) && narrow<Bf16>(ours).bits != bits);
    wrong += !same(fp16, ours16) || (!std::isnan(ours16) && narrow<Fp16>(ours16).bits != bits);
  }
  CHECK(wrong == 0);
}

TEST_CASE("numbers are rounded to the nearest, ties to even, as torch rounds them") {
  std::mt19937 random(7);
  int64_t wrong = 0;
  for (int i = 0; i < 2000000; ++i) {
    const uint32_t bits = static_cast<uint32_t>(random()) & (i % 3 == 0 ? 0xffffe000u : 0xffffffffu);  // many ties
    const float x = std::bit_cast<float>(bits);
    // The exponents where fp16 has its smallest, its normal and its largest numbers.
    const float near_fp16 = std::bit_cast<float>((bits & 0x807fffffu) | ((98 + bits % 48) << 23));
    for (const float value : {x, near_fp16})
      wrong += !rounds_as_torch<Bf16, c10::BFloat16>(value) || !rounds_as_torch<Fp16, c10::Half>(value);
  }
  CHECK(wrong == 0);
}

TEST_CASE("numbers beyond half precision become infinite, and NaN stays NaN") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float x : {65519.0f, 65520.0f, 65535.9f, 65536.0f, 1e30f, 3.39e38f, 3.4e38f, kInfinity, -kInfinity}) {
    CAPTURE(x);
    CHECK(rounds_as_torch<Bf16, c10::BFloat16>(x));
    CHECK(rounds_as_torch<Fp16, c10::Half>(x));
  }
  CHECK(widen(narrow<Fp16>(65519.0f)) == 65504.0f);
  CHECK(widen(narrow<Fp16>(65520.0f)) == kInfinity);
  for (const uint32_t bits : {0x7fc00000u, 0x7f800001u, 0xffffffffu, 0x7fffffffu}) {
    CHECK(std::isnan(widen(narrow<Bf16>(std::bit_cast<float>(bits)))));
    CHECK(std::isnan(widen(narrow<Fp16>(std::bit_cast<float>(bits)))));
  }
}

}  // namespace shardline::number_types_test
