#include "models/graph/autograd_layer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "core/device/accelerator.h"
#include "core/error.h"
#include "core/model/backward.h"

namespace shardline {

void connect_gradients(const std::vector<at::Tensor>& leaves, const std::vector<Parameter*>& parameters) {
  SL_ASSERT(leaves.size() == parameters.size(), leaves.size(), " leaves of ", parameters.size(), " parameters");
  for (size_t i = 0; i < leaves.size(); ++i) {
    const at::Tensor& gradient = parameters[i]->grad;
    leaves[i].mutable_grad() = gradient.defined() ? gradient.view(leaves[i].sizes()) : gradient;
  }
}

at::Tensor without_rows(const Border& input, const std::vector<int64_t>& sizes, const at::TensorOptions& options) {
  std::vector<std::pair<std::vector<int64_t>, at::TensorOptions>> inputs;
  for (const auto& tensor : input) inputs.emplace_back(tensor.sizes().vec(), tensor.options().requires_grad(false));
  return with_backward(at::zeros(sizes, options.requires_grad(false)), input, {}, "EmptyMicrobatch",
                       [inputs](const auto&, const auto&) {
                         std::vector<at::Tensor> gradients;
                         for (const auto& [of_input, like] : inputs) gradients.push_back(at::zeros(of_input, like));
                         return gradients;
                       });
}

Border summed_loss(const at::Tensor& sum, const at::Tensor& weight, MicrobatchContext& context) {
  const auto known = on_host(at::stack({sum.detach().to(at::kDouble), weight.to(at::kDouble)}), "loss of a microbatch");
  context.loss = {known[0].item<double>(), known[1].item<double>()};
  return context.mode == Mode::train ? Border{sum * context.loss_scale} : Border{};
}

}  // namespace shardline
