#include "models/program/ops/attention_op.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <vector>

#include "core/device/accelerator.h"
#include "models/program/ops/own_op.h"
#include "tensor_parallel/kernels/device_attention.h"
#include "tensor_parallel/kernels/row_kernels.h"

namespace shardline {
namespace {

enum Argument { kQuery, kKey, kValue, kMask, kCausal = 5, kScale };

AttentionPattern pattern_of(const torch::jit::Stack& arguments) {
  return {arguments[kCausal].toBool()};
}

}  // namespace

bool is_own_attention(const torch::jit::Stack& arguments, const AttentionDropout& dropout) {
  if (!arguments[kMask].isNone()) return false;
  const at::Tensor &q = arguments[kQuery].toTensor(), &k = arguments[kKey].toTensor(),
                   &v = arguments[kValue].toTensor();
  const auto fits = [&](const at::Tensor& t) {
    return t.sizes() == q.sizes() && t.stride(3) == 1 && t.scalar_type() == q.scalar_type() && t.device() == q.device();
  };
  if (q.dim() != 4 || q.numel() == 0 || q.layout() != at::kStrided || !fits(q) || !fits(k) || !fits(v)) return false;
  // Autocast would convert float32.
  if (q.scalar_type() == at::kFloat && at::autocast::is_autocast_enabled(q.device().type())) return false;
  if (runs_loops(q)) return true;
  return is_accelerator(q.device()) && attention_way(q, dropout, pattern_of(arguments)) != AttentionWay::aten;
}

at::Tensor own_attention(const torch::jit::Stack& arguments, const AttentionDropout& dropout) {
  const at::Tensor &q = arguments[kQuery].toTensor(), &k = arguments[kKey].toTensor(),
                   &v = arguments[kValue].toTensor();
  const AttentionPattern pattern = pattern_of(arguments);
  const ScoreScale scale(arguments[kScale].toOptional<double>().value_or(1 / std::sqrt(q.size(3))));
  at::Tensor out, log_sum_exp;
  {
    const at::NoGradGuard no_grad;
    std::tie(out, log_sum_exp) = attention_forward(q.detach(), k.detach(), v.detach(), scale, dropout, pattern);
  }
  return with_own_backward(out, {q, k, v}, {}, {q, k, v, out, log_sum_exp}, "Attention",
                           [=](const at::Tensor& d_out, const SavedTensors& kept, const std::vector<at::Tensor>&) {
                             const auto gradients = parts_of_qkv(attention_backward(
                                 d_out, kept[0], kept[1], kept[2], kept[3], kept[4], scale, dropout, pattern));
                             return std::vector<at::Tensor>(gradients.begin(), gradients.end());
                           });
}

}  // namespace shardline
