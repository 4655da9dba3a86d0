#include "models/program/ops/dropped_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_safe_softmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>

#include <cmath>
#include <limits>

#include "core/error.h"

namespace shardline {

at::Tensor dropped_attention(const torch::jit::Stack& arguments,
                             const std::function<at::Tensor(const at::Tensor& probabilities)>& drop) {
  enum { kQuery, kKey, kValue, kMask, kProbability, kCausal, kScale, kGrouped, kCount };
  SL_ASSERT(arguments.size() == kCount, "attention with ", arguments.size(), " arguments");
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  const at::Tensor query = arguments[kQuery].toTensor();
  at::Tensor key = arguments[kKey].toTensor(), value = arguments[kValue].toTensor();
  if (arguments[kGrouped].toBool()) {
    key = key.repeat_interleave(query.size(-3) / key.size(-3), -3);
    value = value.repeat_interleave(query.size(-3) / value.size(-3), -3);
  }
  const auto scale = arguments[kScale].toOptional<double>();
  at::Tensor scores = at::matmul(query * scale.value_or(1 / std::sqrt(query.size(-1))), key.transpose(-2, -1));
  if (arguments[kCausal].toBool()) {
    const auto seen = at::ones({query.size(-2), key.size(-2)}, query.options().dtype(at::kBool)).tril();
    scores = scores.masked_fill(seen.logical_not(), kNever);
  }
  if (const auto mask = arguments[kMask].toOptional<at::Tensor>())
    scores = mask->scalar_type() == at::kBool ? scores.masked_fill(mask->logical_not(), kNever) : scores + *mask;
  return at::matmul(drop(at::_safe_softmax(scores, -1)), value);
}

}  // namespace shardline
