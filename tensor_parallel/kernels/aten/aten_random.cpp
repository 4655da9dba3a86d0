#include "tensor_parallel/kernels/aten/aten_random.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/where.h>

#include <array>

#include "core/numbers/philox_block.h"

namespace shardline::aten {
namespace {

constexpr int64_t kMultiplier0 = kPhiloxMultiplier0, kMultiplier1 = kPhiloxMultiplier1, kLowHalf = 0xFFFFFFFF;

// The halves of a product modulo 2^64.
at::Tensor high(const at::Tensor& product) {
  return product.__rshift__(32).bitwise_and_(kLowHalf);
}
at::Tensor low(const at::Tensor& product) {
  return product.bitwise_and(kLowHalf);
}

}  // namespace

at::Tensor random_keep(const RandomStream& stream, const at::Tensor& sample, const at::Tensor& element,
                       double probability_of_keeping) {
  const at::Tensor block = element.__rshift__(2);
  std::array<at::Tensor, 4> c = {low(block), block.__rshift__(32).bitwise_or_(int64_t{stream.op} << 16), sample,
                                 at::full_like(sample, int64_t{stream.step})};
  auto key0 = static_cast<uint32_t>(stream.seed), key1 = static_cast<uint32_t>(stream.seed >> 32);
  for (int round = 0; round < 10; ++round, key0 += kPhiloxWeyl0, key1 += kPhiloxWeyl1) {
    const at::Tensor product0 = c[0] * kMultiplier0, product1 = c[2] * kMultiplier1;
    c = {high(product1).bitwise_xor(c[1]).bitwise_xor_(int64_t{key0}), low(product1),
         high(product0).bitwise_xor(c[3]).bitwise_xor_(int64_t{key1}), low(product0)};
  }
  const at::Tensor place = element.bitwise_and(3);
  const at::Tensor word = at::where(place < 2, at::where(place == 0, c[0], c[1]), at::where(place == 2, c[2], c[3]));
  return word < static_cast<int64_t>(probability_of_keeping * 4294967296.0);
}

}  // namespace shardline::aten
