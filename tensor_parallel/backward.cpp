#include "tensor_parallel/backward.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "core/error.h"

namespace shardline {
namespace {

class OpNode : public torch::autograd::Node {
 public:
  OpNode(const char* name, BackwardFunction backward) : name_(name), backward_(std::move(backward)) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& d_outputs) override {
    SL_ASSERT(backward_, name_, " was run backward twice");
    const BackwardFunction backward = std::move(backward_);
    backward_ = nullptr;
    at::NoGradGuard no_grad;
    return backward(d_outputs[0]);
  }
  std::string name() const override { return name_; }
  void release_variables() override { backward_ = nullptr; }

 private:
  const char* name_;
  BackwardFunction backward_;
};

}  // namespace

at::Tensor with_backward(at::Tensor output, const std::vector<at::Tensor>& inputs, const char* name,
                         BackwardFunction backward) {
  if (!at::GradMode::is_enabled()) return output;
  output = output.detach();  // of its own, also where it is a view of something the op keeps
  auto node = std::make_shared<OpNode>(name, std::move(backward));
  node->set_next_edges(torch::autograd::collect_next_edges(inputs));
  torch::autograd::set_history(output, node);
  return output;
}

}  // namespace shardline
