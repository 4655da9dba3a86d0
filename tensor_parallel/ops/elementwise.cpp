#include "tensor_parallel/ops/elementwise.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "core/error.h"
#include "core/model/backward.h"
#include "core/model/work_notes.h"

namespace shardline {

int64_t valid_border_rows(const TensorParallel& tp, int64_t tokens) {
  if (!tp.sequence_parallel) return tokens;
  const int64_t rows = border_rows(tokens, tp.size(), true);
  return std::clamp<int64_t>(tokens - tp.rank() * rows, 0, rows);
}

Range tokens_of_rows(const TensorParallel& tp, int64_t tokens) {
  const int64_t first = tp.sequence_parallel ? tp.rank() * border_rows(tokens, tp.size(), true) : 0;
  return {first, valid_border_rows(tp, tokens)};
}

at::Tensor positions_of_rows(const TensorParallel& tp, const Microbatch& batch) {
  const Range mine = tokens_of_rows(tp, batch.tokens());
  return batch.positions.narrow(0, mine.length == 0 ? 0 : mine.begin, mine.length);
}

at::Tensor layer_norm(const TensorParallel& tp, const at::Tensor& x, int64_t tokens, Parameter& weight, Parameter& bias,
                      double epsilon) {
  at::Tensor y, mean, rstd;
  {
    at::NoGradGuard no_grad;
    note_sweep(x.numel(), 2);
    std::tie(y, mean, rstd) = layer_norm_forward(x, weight.value, bias.value, epsilon);
  }
  const int64_t valid = valid_border_rows(tp, tokens);
  return with_backward(
      y, {x}, {x, mean, rstd}, "LayerNorm", [valid, &weight, &bias](const at::Tensor& dy, const SavedTensors& saved) {
        note_sweep(dy.numel(), 3);
        if (weight.grad.defined()) note_sweep(dy.numel(), 2, 0, 2);
        return std::vector<at::Tensor>{layer_norm_backward(dy.contiguous(), saved[0], saved[1], saved[2], weight.value,
                                                           weight.grad, bias.grad, valid)};
      });
}

at::Tensor rms_norm(const TensorParallel& tp, const at::Tensor& x, int64_t tokens, Parameter& weight, double epsilon) {
  at::Tensor y, rstd;
  {
    at::NoGradGuard no_grad;
    note_sweep(x.numel(), 2);
    std::tie(y, rstd) = rms_norm_forward(x, weight.value, epsilon);
  }
  const int64_t valid = valid_border_rows(tp, tokens);
  return with_backward(y, {x}, {x, rstd}, "RmsNorm", [valid, &weight](const at::Tensor& dy, const SavedTensors& saved) {
    note_sweep(dy.numel(), 3);
    if (weight.grad.defined()) note_sweep(dy.numel(), 2);
    return std::vector<at::Tensor>{
        rms_norm_backward(dy.contiguous(), saved[0], saved[1], weight.value, weight.grad, valid)};
  });
}

at::Tensor bias_activation(const at::Tensor& x, Parameter& bias, Activation activation) {
  at::Tensor y;
  {
    at::NoGradGuard no_grad;
    note_sweep(x.numel(), 2);
    y = bias_activation_forward(x, bias.value.view(-1), activation);
  }
  return with_backward(
      y, {x}, {x}, "BiasActivation", [activation, &bias](const at::Tensor& dy, const SavedTensors& saved) {
        const auto bias_grad = bias.grad.defined() ? bias.grad.view(-1) : bias.grad;
        note_sweep(dy.numel(), 3);
        if (bias_grad.defined()) note_sweep(dy.numel(), 1);
        return std::vector<at::Tensor>{
            bias_activation_backward(dy.contiguous(), saved[0], bias.value.view(-1), activation, bias_grad)};
      });
}

at::Tensor bias_dropout_add(const TensorParallel& tp, const at::Tensor& x, int64_t tokens, Parameter* bias,
                            const at::Tensor& residual, const DropoutRows& rows) {
  at::Tensor y;
  {
    at::NoGradGuard no_grad;
    note_sweep(x.numel(), residual.defined() ? 3 : 2, 1);
    y = bias_dropout_add_forward(x, bias ? bias->value : at::Tensor(), residual, rows);
  }
  const int64_t valid = valid_border_rows(tp, tokens);
  std::vector<at::Tensor> inputs = {x};
  if (residual.defined()) inputs.push_back(residual);
  const auto backward = [=, inputs = inputs.size(), branch = x.scalar_type()](const at::Tensor& d_y,
                                                                              const SavedTensors&) {
    const auto dy = d_y.contiguous();
    note_sweep(dy.numel(), 2, 1);
    if (bias && bias->grad.defined()) note_sweep(dy.numel(), 1);
    std::vector<at::Tensor> gradients = {
        bias_dropout_backward(dy, rows, bias ? bias->grad : at::Tensor(), valid, branch)};
    if (inputs == 2) gradients.push_back(dy);
    return gradients;
  };
  return with_backward(y, inputs, {}, "BiasDropoutAdd", backward);
}

uint32_t dropout_op(int64_t layer, int site) {
  SL_ASSERT(site >= 0 && site < 8 && layer < 8191, "layer ", layer, ", site ", site);
  return layer * 8 + site;
}

DropoutRows dropout_rows(const TensorParallel& tp, const MicrobatchContext& context, int64_t layer, int site,
                         double probability) {
  const Microbatch& batch = *context.batch;
  const uint32_t step = context.step;
  return {.seed = context.seed,
          .op = dropout_op(layer, site),
          .step = step,
          .probability = context.mode == Mode::train ? probability : 0.0,
          .samples = batch.samples,
          .places = batch.places,
          .first_token = tokens_of_rows(tp, batch.tokens()).begin,
          .tokens = batch.tokens()};
}

}  // namespace shardline
