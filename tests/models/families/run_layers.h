// Runs one microbatch through a model, layer by layer as the executor does, on ranks that are threads.
#pragma once
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include <memory>
#include <mutex>
#include <vector>

#include "core/comm/threads_communicator.h"
#include "core/model/layer.h"
#include "tests/tensor_parallel/ranks.h"

namespace shardline {

struct LayersRun {
  int ranks = 1;  // T
  bool sequence_parallel = false;
  at::ScalarType type = at::kDouble;
  bool fp32_residuals = false;              // borders are fp32
  at::ScalarType rounded_to = at::kDouble;  // values are rounded to this type first
};

struct LayersOutcome {
  LossTerm loss;
  std::vector<at::Tensor> gradients;  // for all parameters of the spec, whole, in its order
  at::Tensor logits;                  // from an evaluation that predicts
  bool types_hold = true;             // borders and gradients have the types that they should have
  bool ranks_agree = true;            // on loss and logits
};

namespace run_layers_parts {

inline bool is_border_type(const at::Tensor& t, const LayersRun& on) {
  return t.scalar_type() == (on.fp32_residuals ? at::kFloat : on.type);
}

// Runs the layers on one rank and adds what it finds to `outcome`.
inline void run_rank(const ModelSpec& spec, const std::vector<at::Tensor>& values, MicrobatchContext context,
                     const LayersRun& on, const CommunicatorPtr& world, std::mutex& mutex, LayersOutcome& outcome) {
  std::vector<std::vector<Parameter>> parameters;
  std::vector<std::unique_ptr<Layer>> layers;
  size_t next = 0;
  const auto wide = on.type == at::kDouble ? at::kDouble : at::kFloat;
  for (const auto& layer : spec.layers) {
    auto& mine = parameters.emplace_back();
    for (const auto& param : layer.params) {
      mine.push_back(parameter_of(param, values[next++], world->rank(), on.ranks));
      mine.back().value = mine.back().value.to(on.rounded_to).to(on.type);
      mine.back().grad = at::zeros(mine.back().value.sizes(), wide);
    }
  }
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    LayerBuild build{.spec = &spec.layers[i],
                     .params = {},
                     .tp = world.get(),
                     .sequence_parallel = on.sequence_parallel,
                     .index = static_cast<int64_t>(i)};
    if (on.fp32_residuals) build.half.border = at::kFloat;
    for (auto& param : parameters[i]) build.params.push_back(&param);
    layers.push_back(spec.layers[i].build(build));
  }

  const bool trains = context.mode == Mode::train;
  const at::AutoGradMode grad(trains);
  bool types_hold = true;
  std::vector<Border> inputs, outputs;
  at::Tensor logits;
  for (size_t i = 0; i < layers.size(); ++i) {
    Border input = i > 0 ? outputs.back() : Border();
    for (auto& tensor : input) tensor = tensor.detach().requires_grad_(trains);
    if (i > 0) inputs.push_back(input);
    const Border output = layers[i]->forward(input, context);
    const bool last = i + 1 == layers.size();
    if (!last) types_hold &= is_border_type(output.at(0), on);
    if (last && !output.empty()) types_hold &= output[0].scalar_type() == wide;
    if (trains || !last) outputs.push_back(output);
    if (!trains && last && !output.empty()) logits = output[0];
  }
  if (trains) {
    torch::autograd::backward(outputs.back());
    for (size_t i = layers.size() - 1; i-- > 0;) {
      std::vector<at::Tensor> gradients;
      for (const auto& tensor : inputs[i]) gradients.push_back(tensor.grad());
      types_hold &= is_border_type(gradients.at(0), on);
      torch::autograd::backward(outputs[i], gradients);
    }
  }

  const std::scoped_lock lock(mutex);
  const bool first = !outcome.logits.defined() && outcome.loss.weight == 0;
  if (!first)
    outcome.ranks_agree &= outcome.loss.sum == context.loss.sum && outcome.loss.weight == context.loss.weight &&
                           (!logits.defined() || difference(outcome.logits, logits) == 0);
  outcome.loss = context.loss;
  outcome.logits = logits;
  outcome.types_hold &= types_hold;
  next = 0;
  for (size_t i = 0; i < layers.size(); ++i)
    for (size_t p = 0; p < parameters[i].size(); ++p, ++next) {
      const ParamSpec& param = spec.layers[i].params[p];
      auto part = part_of(param, outcome.gradients[next], world->rank(), on.ranks);
      if (param.partial_over_t)
        part.add_(parameters[i][p].grad);
      else
        part.copy_(parameters[i][p].grad);
    }
}

}  // namespace run_layers_parts

// values: whole ones of all parameters of the spec, in its order. context: without results.
inline LayersOutcome run_layers(const ModelSpec& spec, const std::vector<at::Tensor>& values,
                                const MicrobatchContext& context, const LayersRun& on) {
  LayersOutcome outcome;
  for (const auto& value : values) outcome.gradients.push_back(at::zeros(value.sizes(), at::kDouble));
  std::mutex mutex;
  run_ranks(on.ranks, [&](const CommunicatorPtr& world) {
    run_layers_parts::run_rank(spec, values, context, on, world, mutex, outcome);
  });
  return outcome;
}

}  // namespace shardline
