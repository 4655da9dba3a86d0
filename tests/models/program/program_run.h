// Runs a program outside of the engine: its layers one after another, as the executor runs them.
#pragma once
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/comm/communicator.h"
#include "core/comm/local_communicator.h"
#include "core/model/backward.h"
#include "core/model/layer.h"
#include "models/program/layers/program_layers.h"

#include "tests/catch.h"

namespace shardline {

// All layers of the program with values of their own, run one after another as the executor does.
class ProgramRun {
 public:
  static constexpr int64_t kTracedLength = 8;

  explicit ProgramRun(std::shared_ptr<const Program> program, at::ScalarType type = at::kFloat, HalfOptions half = {},
                      int64_t traced_length = kTracedLength)
      : program_(std::move(program)), spec(spec_of_program(program_, traced_length)), alone_(make_local_world()) {
    for (const auto& layer : spec.layers) {
      LayerBuild build{.spec = &layer, .tp = alone_.get(), .index = std::ssize(layers_), .half = half};
      for (const auto& param : layer.params) {
        const std::string owner = param.tied_to.empty() ? layer.full_name(param) : param.tied_to;
        auto& value = values_[owner];
        if (!value.defined()) value = program_->archive.weights->tensor(param.sources[0].tensor).to(type, false, true);
        parameters_.push_back({layer.full_name(param), &param, value, at::zeros_like(value, at::toOpMathType(type))});
        build.params.push_back(&parameters_.back());
      }
      layers_.push_back(layer.build(build));
    }
  }

  ProgramRun(Pt2Archive archive, int64_t traced_length, at::ScalarType type)
      : ProgramRun(cut_program(std::move(archive)), type, {}, traced_length) {}

  // Returns the loss of a microbatch in training, and adds the gradients.
  LossTerm train(const Microbatch& batch, double loss_scale = 1, int64_t step = 1) {
    MicrobatchContext context{.batch = &batch, .seed = 5, .step = step, .loss_scale = loss_scale};
    std::vector<Border> inputs;
    std::vector<std::vector<torch::autograd::Edge>> edges;
    Border border;
    const at::AutoGradMode grad(true);
    for (const auto& layer : layers_) {
      for (auto& tensor : border) tensor = tensor.detach().requires_grad_(true);
      inputs.push_back(border);
      border = layer->forward(border, context);
      edges.emplace_back();
      for (const auto& tensor : border) edges.back().push_back(torch::autograd::impl::gradient_edge(tensor));
    }
    std::vector<at::Tensor> gradients = {at::ones_like(border[0].detach())};
    for (size_t i = layers_.size(); i-- > 0;) {
      backward_on_this_thread(edges[i], gradients);
      gradients.clear();
      for (const auto& tensor : inputs[i]) gradients.push_back(tensor.grad());
    }
    return context.loss;
  }

  Border run(const Microbatch& batch, Mode mode, LossTerm* loss = nullptr, bool predicts = false) {
    MicrobatchContext context{.batch = &batch, .mode = mode, .predicts = predicts};
    const at::NoGradGuard no_grad;
    Border border;
    for (const auto& layer : layers_) border = layer->forward(border, context);
    if (loss) *loss = context.loss;
    return border;
  }

  // Gradients by name in the file; uses of a tied parameter are added.
  std::map<std::string, at::Tensor> gradients() const {
    std::map<std::string, at::Tensor> sums;
    for (const auto& parameter : parameters_) {
      const std::string owner = parameter.spec->tied_to.empty() ? parameter.name : parameter.spec->tied_to;
      auto& sum = sums[spec.param(owner).sources[0].tensor];
      sum = sum.defined() ? sum + parameter.grad : parameter.grad.clone();
    }
    return sums;
  }

 private:
  std::shared_ptr<const Program> program_;

 public:
  const ModelSpec spec;

 private:
  CommunicatorPtr alone_;
  std::map<std::string, at::Tensor> values_;
  std::deque<Parameter> parameters_;
  std::vector<std::unique_ptr<Layer>> layers_;
};

inline double largest_difference(const std::map<std::string, at::Tensor>& a,
                                 const std::map<std::string, at::Tensor>& b) {
  double worst = 0;
  REQUIRE(a.size() == b.size());
  for (const auto& [name, tensor] : a)
    worst = std::max(
        worst, (tensor - b.at(name)).abs().max().item<double>() / std::max(tensor.abs().max().item<double>(), 1e-12));
  return worst;
}

}  // namespace shardline
