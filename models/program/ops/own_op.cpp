#include "models/program/ops/own_op.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "core/error.h"
#include "tensor_parallel/kernels/row_kernels.h"

namespace shardline {
namespace {

// Whether the gradient of a weight is added where autograd would add it.
bool adds_to_gradient(const at::Tensor& weight) {
  if (!weight.is_leaf()) return false;
  const at::Tensor& gradient = weight.grad();
  return gradient.defined() && gradient.sizes() == weight.sizes() && gradient.is_contiguous() &&
         gradient.scalar_type() == wide_type(weight);
}

}  // namespace

bool needs_gradient(const at::Tensor& argument) {
  return argument.defined() && argument.requires_grad() && at::GradMode::is_enabled();
}

at::Tensor with_own_backward(at::Tensor output, const std::vector<at::Tensor>& inputs,
                             const std::vector<at::Tensor>& weights, const SavedTensors& saved, const char* name,
                             OwnBackward backward) {
  if (std::ranges::none_of(inputs, needs_gradient) && std::ranges::none_of(weights, needs_gradient)) return output;
  std::vector<at::Tensor> given = inputs, trained;  // to autograd; weights, undefined if not trained
  std::vector<bool> adds;
  for (const auto& weight : weights) {
    adds.push_back(needs_gradient(weight) && adds_to_gradient(weight));
    if (needs_gradient(weight) && !adds.back()) given.push_back(weight);
    trained.push_back(adds.back() ? weight : needs_gradient(weight) ? weight.detach() : at::Tensor());
  }
  std::vector<int64_t> versions;
  for (const auto& tensor : saved) versions.push_back(tensor._version());
  return with_backward(
      std::move(output), given, saved, name,
      [=, count = given.size(), backward = std::move(backward)](const at::Tensor& d_output, const SavedTensors& kept) {
        if (!d_output.defined()) return std::vector<at::Tensor>(count);
        for (size_t i = 0; i < kept.size(); ++i)
          if (kept[i]._version() != versions[i])
            throw RunError(
                cat("the program changes a tensor of sizes ", kept[i].sizes(),
                    " in place although the backward pass needs its old values; use a call that returns a new tensor"));
        std::vector<at::Tensor> sums;
        for (size_t i = 0; i < trained.size(); ++i) {
          const at::Tensor& weight = trained[i];
          sums.push_back(!weight.defined() ? weight
                         : adds[i]         ? weight.grad()
                                           : at::zeros(weight.sizes(), weight.options().dtype(wide_type(weight))));
        }
        std::vector<at::Tensor> gradients = backward(d_output, kept, sums);
        for (size_t i = 0; i < trained.size(); ++i)
          if (trained[i].defined() && !adds[i]) gradients.push_back(sums[i].to(trained[i].scalar_type()));
        return gradients;
      });
}

}  // namespace shardline
