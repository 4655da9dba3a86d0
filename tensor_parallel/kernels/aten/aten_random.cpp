#include "tensor_parallel/kernels/aten/aten_random.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/where.h>

#include <array>

#include "core/numbers/philox_block.h"

namespace shardline::aten {
namespace {

constexpr int64_t kMultiplier0 = kPhiloxMultiplier0, kMultiplier1 = kPhiloxMultiplier1, kLowHalf = 0xFFFFFFFF;

// The upper half of a product modulo 2^64; below, the lower half.
at::Tensor high(const at::Tensor& product) {
  return product.bitwise_right_shift(32).bitwise_and_(kLowHalf);
}
at::Tensor low(const at::Tensor& product) {
  return product.bitwise_and(kLowHalf);
}

// Torch has no where() for meta tensors, with which dry runs of accelerators make masks.
at::Tensor chosen(const at::Tensor& condition, const at::Tensor& yes, const at::Tensor& no) {
  return condition.is_meta() ? at::empty_like(yes) : at::where(condition, yes, no);
}

}  // namespace

at::Tensor random_words(const RandomStream& stream, const at::Tensor& sample, const at::Tensor& element) {
  const at::Tensor block = element.bitwise_right_shift(2);
  std::array<at::Tensor, 4> c = {low(block), block.bitwise_right_shift(32).bitwise_or_(int64_t{stream.op} << 16),
                                 sample, at::full_like(sample, int64_t{stream.step})};
  uint32_t key0 = stream.seed, key1 = stream.seed >> 32;
  for (int round = 0; round < 10; ++round, key0 += kPhiloxWeyl0, key1 += kPhiloxWeyl1) {
    const at::Tensor product0 = c[0] * kMultiplier0, product1 = c[2] * kMultiplier1;
    c = {high(product1).bitwise_xor(c[1]).bitwise_xor_(int64_t{key0}), low(product1),
         high(product0).bitwise_xor(c[3]).bitwise_xor_(int64_t{key1}), low(product0)};
  }
  const at::Tensor place = element.bitwise_and(3);
  return chosen(place < 2, chosen(place == 0, c[0], c[1]), chosen(place == 2, c[2], c[3]));
}

at::Tensor random_keep(const RandomStream& stream, const at::Tensor& sample, const at::Tensor& element,
                       double probability_of_keeping) {
  const int64_t limit = probability_of_keeping * 4294967296.0;
  return random_words(stream, sample, element) < limit;
}

}  // namespace shardline::aten
