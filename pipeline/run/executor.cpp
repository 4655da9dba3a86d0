#include "pipeline/run/executor.h"

#include <ATen/OpMathType.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/variable.h>

#include "core/device/accelerator.h"
#include "core/device/host_pace.h"
#include "core/error.h"
#include "core/flight/flight_ring.h"
#include "core/memory/caching_allocator.h"
#include "core/model/backward.h"
#include "pipeline/activations/acquired_layers.h"
#include "pipeline/schedule/messages_held.h"
#include "pipeline/schedule/schedule_simulation.h"

namespace shardline {
namespace {

Border detached(const Border& border, bool requires_grad) {
  Border result;
  for (const auto& tensor : border) result.push_back(tensor.detach().requires_grad_(requires_grad));
  return result;
}

// The gradient with which the backward pass of a loss starts; in host memory, where reading it requires no wait.
at::Tensor loss_gradient(const at::TensorOptions& activations) {
  return at::ones({}, at::toOpMathType(c10::typeMetaToScalarType(activations.dtype())));
}

}  // namespace

Executor::Executor(StageLayers& stage, Communicator& pp, ParameterStore& parameters)
    : stage_(stage),
      parameters_(parameters),
      messages_(pp, stage.activations),
      kept_(stage.choices.offload, stage.activations.device(), stage.offload_directory),
      recorder_(stage.activations.device(), stage.waits_for_device) {
  for (const auto& layers : stage.layers_of_chunk)
    groups_of_chunk_.push_back(layer_groups(layers, stage.choices.recompute, stage.choices.first_with_backward));
}

RunResult Executor::run(const Schedule& schedule, const std::vector<Microbatch>& microbatches,
                        const RunSettings& settings) {
  SL_ASSERT(schedule.microbatches == std::ssize(microbatches));
  SL_ASSERT(schedule.stages == messages_.stages(), "a schedule of ", schedule.stages, " stages on ",
            messages_.stages());
  schedule_ = &schedule;
  microbatches_ = &microbatches;
  settings_ = settings;
  result_ = {};
  result_.losses.resize(microbatches.size());
  result_.outputs.resize(microbatches.size());

  const auto& list = schedule.instructions[messages_.stage()];
  kept_.begin_run(list);
  parameters_.begin_run(acquired_layers(list, stage_.layers_of_chunk, groups_of_chunk_));
  // In the first run of a mode, CUDA loads kernels and initializes libraries, and memory is allocated and page-locked.
  // Each of these may wait for everything running on the device, even for a receive whose message depends on this rank.
  // Later runs may page-lock more memory if the sizes of offloaded tensors change from one run to the next.
  std::vector<int64_t> tokens;
  for (const auto& microbatch : microbatches) tokens.push_back(microbatch.tokens());
  auto& last_tokens = last_tokens_[settings.mode];
  const bool offloads = stage_.choices.offload.enabled && settings.mode == Mode::train;
  const bool may_lock = last_tokens.empty() || (offloads && last_tokens != tokens);
  last_tokens = std::move(tokens);
  messages_.begin(
      schedule, [this](const Instruction& receive) { return shapes(receive); },
      /*posts_ahead=*/!may_lock || !is_accelerator(stage_.activations.device()));
  recorder_.begin_run();
  HostPace pace(stage_.activations.device(), kInstructionsAhead);
  for (place_ = 0; place_ < list.size(); ++place_) {
    recorder_.begin(list[place_]);
    kept_.fetch_ahead(list, place_);
    execute(list[place_], weights_follow(list, place_));
    if (stage_.waits_for_device)
      wait_for_device(stage_.activations.device(), "the end of a timed instruction");
    else if (computes(list[place_].op))
      pace.mark("an earlier instruction");
    recorder_.end(kept_.live_bytes());
  }
  recorder_.end_run();
  kept_.end_run();
  messages_.finish();
  SL_ASSERT(kept_.empty() && gradients_.empty() && kept_.live_bytes() == 0, "the schedule left work behind");
  activations_.clear();
  result_.peak_activation_bytes = kept_.peak_bytes();
  return std::move(result_);
}

void Executor::execute(const Instruction& instruction, bool drain) {
  const Pass pass{instruction.microbatch, instruction.chunk};
  // The neighbouring passes of this microbatch.
  const Pass previous{pass.microbatch, pass.chunk - 1}, next{pass.microbatch, pass.chunk + 1};
  switch (instruction.op) {
    case Op::forward:
      return forward(pass);
    case Op::backward_input:
      return backward_input(pass, drain);
    case Op::backward_weight:
      return backward_weight(pass);
    case Op::send_activation:
      return messages_.send(activations_.extract(next).mapped(), instruction);
    case Op::recv_activation:
      activations_[pass] = receive(instruction);
      return;
    case Op::send_gradient:
      return messages_.send(gradients_.extract(previous).mapped(), instruction);
    case Op::recv_gradient:
      gradients_[pass] = receive(instruction);
      return;
    case Op::end_gradients:
      return;  // the checker has proved it; the store knows it from each layer's last close_gradients
    case Op::settle_gradients:
      return parameters_.settle_gradients();
  }
}

MicrobatchContext Executor::context_of(const Pass& pass) const {
  return {.batch = &(*microbatches_)[pass.microbatch],
          .mode = settings_.mode,
          .seed = settings_.seed,
          .step = settings_.step,
          .loss_scale = settings_.loss_scale,
          .embedding_noise = settings_.embedding_noise,
          .label_smoothing = settings_.label_smoothing,
          .predicts = settings_.predicts};
}

void Executor::forward(const Pass& pass) {
  const MemoryScope scope(MemoryClass::activations);
  const bool keeps = settings_.mode == Mode::train && pass.chunk >= schedule_->first_backward_chunk;
  const auto& layers = layers_of(pass);
  auto context = context_of(pass);
  Border border;
  if (pass.chunk > 0) border = std::move(activations_.extract(pass).mapped());
  if (keeps) {
    auto& kept = kept_.add(pass, layers.size());
    const bool out = kept_.moves_out(pass, place_);
    for (const LayerGroup& group : groups_of_chunk_[pass.chunk]) {
      KeptLayer& first = kept[group.first];
      if (group.recomputed) {
        first.input = detached(border, false);
        kept_.count(first);
        for (size_t i = group.first; i < group.first + group.count; ++i) border = run_layer(layers[i], border, context);
      } else if (!group.has_backward) {
        border = run_layer(layers[group.first], border, context);
      } else {
        border = keep_layer(layers[group.first], border, first, context);
      }
      if (out && may_move_out(stage_.choices.offload, group.recomputed)) kept_.move_out(first);
    }
  } else {
    for (const int layer : layers) border = run_layer(layer, border, context);
  }
  if (pass.chunk + 1 < schedule_->chunks()) {
    activations_[{pass.microbatch, pass.chunk + 1}] = detached(border, false);
  } else {
    result_.losses[pass.microbatch] = context.loss;
    if (settings_.mode == Mode::generate || settings_.predicts) result_.outputs[pass.microbatch] = border.at(0);
  }
}

// Runs a layer without recording an autograd graph.
Border Executor::run_layer(int layer, const Border& input, MicrobatchContext& context) {
  at::NoGradGuard no_grad;
  set_flight_layer(stage_.spec->layers[layer].name);
  context.weight_grads = nullptr;
  context.cache = settings_.caches.empty() ? nullptr : settings_.caches[layer];
  parameters_.acquire(layer);
  auto output = stage_.layers[layer]->forward(input, context);
  parameters_.release(layer);
  return output;
}

// Runs a layer and records an autograd graph from the gradients of the output to `kept.input`.
Border Executor::keep_layer(int layer, const Border& input, KeptLayer& kept, MicrobatchContext& context) {
  at::AutoGradMode grad(true);
  set_flight_layer(stage_.spec->layers[layer].name);
  kept.input = detached(input, true);
  context.weight_grads = &kept.weight_grads;
  context.recompute_attention =
      !stage_.choices.recompute.empty() && stage_.choices.recompute[layer].what == Recompute::What::attention;
  parameters_.acquire(layer);
  const bool makes_loss = layer + 1 == std::ssize(stage_.layers);
  if (makes_loss) parameters_.open_gradients(layer, false);  // the head computes gradients in its forward pass
  const Border output = stage_.layers[layer]->forward(kept.input, context);
  parameters_.release(layer);
  for (const auto& tensor : output) kept.gradients.push_back(torch::autograd::impl::gradient_edge(tensor));
  kept_.count(kept);
  return detached(output, false);
}

void Executor::recompute(const Pass& pass, const LayerGroup& group, std::vector<KeptLayer>& kept) {
  const MemoryScope scope(MemoryClass::activations);
  auto context = context_of(pass);
  KeptLayer& first = kept[group.first];
  bring_back(first);
  Border border = std::move(first.input);
  for (size_t i = group.first; i < group.first + group.count; ++i)
    border = keep_layer(layers_of(pass)[i], border, kept[i], context);
}

void Executor::backward_input(const Pass& pass, bool drain) {
  auto& kept = kept_.of(pass);
  Border gradients;
  if (pass.chunk + 1 < schedule_->chunks())
    gradients = std::move(gradients_.extract(pass).mapped());
  else
    gradients.push_back(loss_gradient(stage_.activations));

  const auto& groups = groups_of_chunk_[pass.chunk];
  for (size_t g = groups.size(); g-- > 0 && groups[g].has_backward;) {
    const LayerGroup& group = groups[g];
    if (group.recomputed) recompute(pass, group, kept);
    for (size_t i = group.first + group.count; i-- > group.first;) {
      const int layer = layers_of(pass)[i];
      open_gradients(layer, drain);
      gradients = layer_backward(layer, kept[i], gradients, drain);
      close_gradients(pass, layer, drain);
    }
  }
  if (pass.chunk > schedule_->first_backward_chunk)
    gradients_[{pass.microbatch, pass.chunk - 1}] = std::move(gradients);
}

// Computes the gradients of a layer's inputs from those of its outputs.
Border Executor::layer_backward(int layer, KeptLayer& kept, const Border& d_output, bool drain) {
  const MemoryScope scope(MemoryClass::activations);
  set_flight_layer(stage_.spec->layers[layer].name);
  bring_back(kept);
  kept.weight_grads.immediate = drain;
  parameters_.acquire(layer);
  backward_on_this_thread(kept.gradients, d_output);
  parameters_.release(layer);
  Border result;
  for (const auto& input : kept.input) result.push_back(input.grad());
  kept.input.clear();
  kept.gradients.clear();
  kept_.count(kept);
  return result;
}

void Executor::backward_weight(const Pass& pass) {
  auto& kept = kept_.of(pass);
  for (size_t i = kept.size(); i-- > 0;) {
    const int layer = layers_of(pass)[i];
    if (layer < stage_.choices.first_with_backward) break;
    if (kept[i].weight_grads.immediate) continue;  // finished in backward_input
    set_flight_layer(stage_.spec->layers[layer].name);
    parameters_.open_gradients(layer, true);
    kept[i].weight_grads.drain();
    kept_.count(kept[i]);
    parameters_.close_gradients(layer, true, is_last(pass));
  }
  kept_.drop(pass);
}

const std::vector<int>& Executor::layers_of(const Pass& pass) const {
  return stage_.layers_of_chunk[pass.chunk];
}

// Whether this is the last pass of its chunk in the step: both halves of a chunk's backward run in ascending microbatch
// order.
bool Executor::is_last(const Pass& pass) const {
  return pass.microbatch + 1 == schedule_->microbatches;
}

void Executor::open_gradients(int layer, bool drain) {
  parameters_.open_gradients(layer, false);
  if (drain) parameters_.open_gradients(layer, true);
}

void Executor::close_gradients(const Pass& pass, int layer, bool drain) {
  parameters_.close_gradients(layer, false, is_last(pass));
  if (drain) parameters_.close_gradients(layer, true, is_last(pass));
}

void Executor::bring_back(KeptLayer& kept) {
  if (kept.away) recorder_.waiting([&] { kept_.bring_back(kept); });
}

Border Executor::receive(const Instruction& instruction) {
  Border border;
  recorder_.waiting([&] { border = messages_.receive(instruction); });
  return border;
}

std::vector<std::vector<int64_t>> Executor::shapes(const Instruction& receive) const {
  const int chunk = receive.op == Op::recv_activation ? receive.chunk - 1 : receive.chunk;
  const int last = stage_.layers_of_chunk[chunk].back();
  const auto& batch = (*microbatches_)[receive.microbatch];
  const int64_t rows = border_rows(batch.tokens(), stage_.t_degree, stage_.sequence_parallel);
  std::vector<std::vector<int64_t>> shapes;
  for (const auto& tensor : stage_.spec->layers[last].output) shapes.push_back(bind_shape(tensor, rows));
  return shapes;
}

}  // namespace shardline
