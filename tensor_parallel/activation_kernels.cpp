#include <map>

#include "core/error.h"
#include "tensor_parallel/aten_kernels.h"
#include "tensor_parallel/kernels.h"

namespace shardline {

Activation activation_from_name(const std::string& name) {
  static const std::map<std::string, Activation> kNames = {{"gelu", Activation::gelu},
                                                           {"gelu_new", Activation::gelu_tanh},
                                                           {"gelu_pytorch_tanh", Activation::gelu_tanh},
                                                           {"gelu_fast", Activation::gelu_tanh},
                                                           {"relu", Activation::relu},
                                                           {"silu", Activation::silu},
                                                           {"swish", Activation::silu},
                                                           {"tanh", Activation::tanh}};
  const auto found = kNames.find(name);
  if (found != kNames.end()) return found->second;
  std::string known;
  for (const auto& entry : kNames) known += (known.empty() ? "" : ", ") + entry.first;
  throw ConfigError(cat("the activation \"", name, "\" of the model's config is not one of: ", known));
}

at::Tensor bias_activation_forward(const at::Tensor& x, const at::Tensor& bias, Activation activation) {
  return aten::bias_activation_forward(x, bias, activation);
}

at::Tensor bias_activation_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& bias,
                                    Activation activation, at::Tensor bias_grad) {
  return aten::bias_activation_backward(dy, x, bias, activation, bias_grad);
}

}  // namespace shardline
