#include "models/graph/module_trace.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>
#include <torch/nn/modules/container/any.h>

#include "core/error.h"
#include "models/graph/torch_seed.h"

namespace shardline {
namespace {

using Named = std::vector<std::pair<std::string, at::Tensor>>;

Named parameters_and_buffers(const std::string& name, const torch::nn::Module& module) {
  Named all;
  for (const auto& item : module.named_parameters()) all.emplace_back(name + "." + item.key(), item.value());
  for (const auto& item : module.named_buffers()) all.emplace_back(name + "." + item.key(), item.value());
  return all;
}

// Equality where NaN equals NaN.
bool same(const at::Tensor& a, const at::Tensor& b, double relative = 0) {
  if (a.sizes() != b.sizes()) return false;
  const double largest = relative > 0 && a.numel() > 0 ? a.abs().max().item<double>() : 0;
  return at::allclose(a, b, 0, relative * largest, /*equal_nan=*/true);
}

class ModuleTracer {
 public:
  ModuleTracer(const std::string& name, torch::nn::AnyModule& module, const at::Tensor& input, TorchSeed& seed)
      : name_(name), module_(module), input_(input), seed_(seed) {
    module_.ptr()->train();
  }

  PassTrace trace() {
    refuse_what_recomputation_breaks();
    refuse_mixed_samples();
    return measure();
  }

 private:
  [[noreturn]] void refuse(const std::string& module, const std::string& what, const std::string& advice) const {
    throw ConfigError(cat("module ", module, " cannot be a layer: ", what, "; ", advice));
  }

  at::Tensor run(const at::Tensor& input) const {
    try {
      return module_.forward<at::Tensor>(input);
    } catch (const c10::Error& error) {
      refuse(name_,
             cat("its forward failed on one tensor of sizes ", input.sizes(), ": ", error.what_without_backtrace()),
             "a layer takes one tensor and returns one");
    }
  }

  void refuse_what_recomputation_breaks() {
    at::NoGradGuard no_grad;
    const Named state = parameters_and_buffers(name_, *module_.ptr());
    Named before;
    for (const auto& [name, tensor] : state) before.emplace_back(name, tensor.clone());
    const auto input = input_.clone();

    seed_.restart();
    const auto output = run(input);
    if (seed_.drawn()) refuse_random();
    if (input._version() != 0 || !same(input, input_))
      refuse(name_, "it changes its input in place, which recomputation would read again",
             "let it create a new tensor (without `inplace`)");
    for (size_t i = 0; i < state.size(); ++i)
      if (!same(state[i].second, before[i].second))
        refuse(state[i].first, "a forward pass changes it, so running it again gives a different result",
               "use a module without running statistics, or one whose statistics are fixed");
    if (output.dim() != 3 || output.size(0) != input.size(0) || output.size(1) != input.size(1))
      refuse(name_, cat("it returns ", output.sizes(), " for ", input.sizes()),
             "a layer returns [batch, length, features]");
    if (!same(run(input), output))
      refuse(name_, "it returns a different result when it runs again on the same input",
             "make its result depend only on its input, parameters and buffers");
  }

  // Names the modules that draw random numbers, by putting each one into training mode while all others are not.
  [[noreturn]] void refuse_random() {
    std::string drawing;
    for (const auto& item : module_.ptr()->named_modules(name_)) {
      module_.ptr()->eval();
      item.value()->train();
      for (const auto& child : item.value()->children()) child->eval();
      seed_.restart();
      run(input_.clone());
      if (seed_.drawn()) drawing += (drawing.empty() ? "" : ", ") + item.key();
    }
    refuse(drawing.empty() ? name_ : drawing,
           "it draws from torch's random generator, which returns different numbers when it runs again and on other "
           "layouts",
           "set its dropout to 0, or use a layer with shardline's own");
  }

  void refuse_mixed_samples() {
    at::NoGradGuard no_grad;
    const auto batch = several_times(input_);
    const int64_t samples = batch.size(0);
    const auto together = run(batch.clone());
    // Runs each sample alone, which also reveals whether its result depends on the number of samples or on its place in
    // the batch. The tolerance is larger because products of different sizes are rounded differently.
    for (int64_t i = 0; i < samples; ++i)
      if (!same(run(batch.narrow(0, i, 1).clone()), together.narrow(0, i, 1), 1e-3)) refuse_mixing();
    // Runs each sample together with other samples at the same sizes, which reveals weaker dependence. Any two places
    // differ in at least one bit, so for each pair there is a run that keeps one and replaces the other.
    const auto others = batch.roll(1, 0);
    const auto place = at::arange(samples);
    for (int64_t bit = 1; bit < samples; bit *= 2)
      for (const int64_t kept : {int64_t{0}, bit}) {
        const auto stays = place.bitwise_and(bit).eq(kept);
        const auto index = stays.nonzero().squeeze(1);
        auto beside = others.clone();
        beside.index_copy_(0, index, batch.index_select(0, index));
        if (!same(run(beside).index_select(0, index), together.index_select(0, index), 1e-5)) refuse_mixing();
      }
  }

  [[noreturn]] void refuse_mixing() const {
    refuse(name_,
           "its result for a sample depends on the other samples in the microbatch, which differ in other layouts",
           "let it treat the first dimension as independent samples (normalise over features, set batch_first)");
  }

  // Repeats the input to at least kMixingSamples samples: some modules mix only large batches.
  static at::Tensor several_times(const at::Tensor& input) {
    const int64_t times = (kMixingSamples + input.size(0) - 1) / input.size(0);
    return at::cat(std::vector<at::Tensor>(times, input));
  }

  PassTrace measure() {
    const bool differentiable = input_.is_floating_point();
    const auto input = input_.clone().requires_grad_(differentiable);
    std::vector<at::Tensor> known = {input};
    for (const auto& [name, tensor] : parameters_and_buffers(name_, *module_.ptr())) known.push_back(tensor);
    for (const auto& parameter : module_.ptr()->parameters())  // layers accumulate gradients here, too
      known.push_back(parameter.mutable_grad() = at::zeros_like(parameter));
    PassTrace trace;
    try {
      trace = trace_pass(known, [&] {
        auto output = run(input);
        if (!output.requires_grad())
          refuse(name_, "its result depends neither on its input nor on a parameter", "leave it out of the layers");
        return output;
      });
    } catch (const c10::Error& error) {
      refuse(name_,
             cat("its backward failed, for instance because it changes a tensor in place that its gradient needs: ",
                 error.what_without_backtrace()),
             "create a new tensor instead");
    }
    if (differentiable && !input.grad().defined())
      refuse(name_, "its result does not depend on its input, so the layers before it would not be trained",
             "use its input");
    for (const auto& parameter : module_.ptr()->parameters()) parameter.mutable_grad() = at::Tensor();
    return trace;
  }

  const std::string& name_;
  torch::nn::AnyModule& module_;
  const at::Tensor& input_;
  TorchSeed& seed_;
};

}  // namespace

PassTrace trace_module(const std::string& name, torch::nn::AnyModule& module, const at::Tensor& input,
                       TorchSeed& seed) {
  SL_ASSERT(input.size(0) >= 2, "mixing is visible only with two samples or more");
  return ModuleTracer(name, module, input, seed).trace();
}

}  // namespace shardline
