#include "optim/update/device_exact_sum.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "core/device/accelerator.h"

namespace shardline {
namespace {

constexpr int64_t kCopies = 1024;  // copies of every word, so that few additions go to the same address
constexpr int64_t kWordBits = 32, kWordMask = (int64_t{1} << kWordBits) - 1;
constexpr int64_t kMantissaBits = 52, kExponents = 0x7ff;
constexpr int64_t kWords = ExactSum::kWords;

}  // namespace

DeviceExactSum::DeviceExactSum(at::Device device)
    : words_(at::zeros({kCopies, kWords}, at::TensorOptions(at::kLong).device(device))) {}

// As in ExactSum::add: value = mantissa * 2^(place - 1074), split at multiples of 32 bits.
void DeviceExactSum::add(const at::Tensor& values) {
  const at::Tensor bits = values.contiguous().view(at::kLong);
  const at::Tensor exponent = bits.__rshift__(kMantissaBits).bitwise_and_(kExponents);  // a NaN may have a sign
  const at::Tensor fraction = bits.bitwise_and((int64_t{1} << kMantissaBits) - 1);
  const at::Tensor is_number = exponent<kExponents, is_normal = exponent> 0;
  const at::Tensor mantissa = (fraction + is_normal.to(at::kLong).mul_(int64_t{1} << kMantissaBits)).mul_(is_number);
  const at::Tensor place = (exponent - 1).clamp_min_(0), shift = place.remainder(kWordBits);
  const at::Tensor copy = at::arange(values.numel(), bits.options()).remainder_(kCopies).mul_(kWords);
  const at::Tensor first = at::where(is_number, place.floor_divide(kWordBits), 0).add_(copy);
  const at::Tensor all = words_.view(-1);
  all.index_add_(0, first, mantissa.bitwise_left_shift(shift).bitwise_and_(kWordMask));
  all.index_add_(0, first + 1, mantissa.bitwise_right_shift(kWordBits - shift).bitwise_and_(kWordMask));
  all.index_add_(0, first + 2, mantissa.bitwise_right_shift(kWordBits).bitwise_right_shift(kWordBits - shift));
  const at::Tensor infinite = is_number.logical_not().logical_and_(fraction == 0);
  const at::Tensor no_number = is_number.logical_not().logical_and_(fraction != 0);
  words_[0][kWords - 2].add_(infinite.sum());
  words_[0][kWords - 1].add_(no_number.sum());
}

ExactSum DeviceExactSum::on_host(const char* reason) const {
  const at::Tensor words = shardline::on_host(words_.sum(0), reason).contiguous();
  return ExactSum::of_words(words.const_data_ptr<int64_t>());
}

}  // namespace shardline
