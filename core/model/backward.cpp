#include "core/model/backward.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/AutogradState.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>

#include "core/error.h"

namespace shardline {
namespace {

class OpNode : public torch::autograd::Node {
 public:
  OpNode(const char* name, SavedTensors saved, BackwardFunction backward)
      : name_(name), saved_(std::move(saved)), backward_(std::move(backward)) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& d_outputs) override {
    SL_ASSERT(backward_, name_, " was run backward twice");
    const BackwardFunction backward = std::move(backward_);
    const SavedTensors saved = std::move(saved_);
    release_variables();
    at::NoGradGuard no_grad;
    return backward(d_outputs[0], saved);
  }
  std::string name() const override { return name_; }
  void release_variables() override {
    backward_ = nullptr;
    saved_.clear();
  }
  const SavedTensors& saved() const { return saved_; }

 private:
  const char* name_;
  SavedTensors saved_;
  BackwardFunction backward_;
};

class OnThisThread {
 public:
  OnThisThread() : before_(state().get_multithreading_enabled()) { state().set_multithreading_enabled(false); }
  ~OnThisThread() { state().set_multithreading_enabled(before_); }
  OnThisThread(const OnThisThread&) = delete;
  OnThisThread& operator=(const OnThisThread&) = delete;

 private:
  static c10::AutogradState& state() { return c10::AutogradState::get_tls_state(); }
  bool before_;
};

}  // namespace

at::Tensor with_backward(at::Tensor output, const std::vector<at::Tensor>& inputs, SavedTensors saved, const char* name,
                         BackwardFunction backward) {
  if (!at::GradMode::is_enabled()) return output;
  output = output.detach();                             // separate, even if it is a view of something the op keeps
  for (auto& tensor : saved) tensor = tensor.detach();  // so that no path leads from the node back into the graph
  auto node = std::make_shared<OpNode>(name, std::move(saved), std::move(backward));
  node->set_next_edges(torch::autograd::collect_next_edges(inputs));
  torch::autograd::set_history(output, node);
  return output;
}

void backward_on_this_thread(const std::vector<torch::autograd::Edge>& outputs,
                             const std::vector<at::Tensor>& gradients) {
  const OnThisThread here;
  torch::autograd::Engine::get_default_engine().execute(outputs, gradients, /*keep_graph=*/false,
                                                        /*create_graph=*/false, /*accumulate_grad=*/true);
}

SavedTensors saved_in_graph(const std::vector<torch::autograd::Edge>& outputs) {
  SavedTensors saved;
  std::vector<torch::autograd::Node*> nodes;  // nodes visited so far; a layer's graph is small
  const auto see = [&](const torch::autograd::Edge& edge) {
    if (edge.function && std::find(nodes.begin(), nodes.end(), edge.function.get()) == nodes.end())
      nodes.push_back(edge.function.get());
  };
  for (const auto& edge : outputs) see(edge);
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (const auto* op = dynamic_cast<const OpNode*>(nodes[i]))
      saved.insert(saved.end(), op->saved().begin(), op->saved().end());
    for (const auto& edge : nodes[i]->next_edges()) see(edge);
  }
  return saved;
}

}  // namespace shardline
