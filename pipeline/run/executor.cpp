#include "pipeline/run/executor.h"

#include <ATen/OpMathType.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include "core/comm/clock.h"
#include "core/comm/flight_ring.h"
#include "core/device/profiler_range.h"
#include "core/error.h"
#include "core/memory/caching_allocator.h"
#include "core/model/backward.h"
#include "pipeline/activations/acquired_layers.h"
#include "pipeline/schedule/schedule_simulation.h"

namespace shardline {
namespace {

Border detached(const Border& border, bool requires_grad) {
  Border result;
  for (const auto& tensor : border) result.push_back(tensor.detach().requires_grad_(requires_grad));
  return result;
}

// Of losses: at least fp32.
at::ScalarType loss_type(const at::TensorOptions& activations) {
  return at::toOpMathType(c10::typeMetaToScalarType(activations.dtype()));
}

void wait_for(at::Device device) {
  if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

}  // namespace

Executor::Executor(StageLayers& stage, Communicator& pp, ParameterStore& parameters)
    : stage_(stage), parameters_(parameters), messages_(pp, stage.activations) {
  for (const auto& layers : stage.layers_of_chunk)
    groups_of_chunk_.push_back(layer_groups(layers, stage.choices.recompute));
  if (!stage_.choices.offload.enabled) return;
  const at::Device device = stage_.activations.device();
  offload_ = device.is_cpu() ? offload_to_file(stage_.offload_directory) : offload_to_host(device);
}

RunResult Executor::run(const Schedule& schedule, const std::vector<Microbatch>& microbatches,
                        const RunSettings& settings) {
  SL_ASSERT(schedule.microbatches == static_cast<int>(microbatches.size()));
  SL_ASSERT(schedule.stages == messages_.stages(), "a schedule of ", schedule.stages, " stages on ",
            messages_.stages());
  schedule_ = &schedule;
  microbatches_ = &microbatches;
  settings_ = settings;
  result_ = {};
  result_.losses.resize(microbatches.size());
  result_.outputs.resize(microbatches.size());

  live_ = {};
  const auto& list = schedule.instructions[messages_.stage()];
  if (offload_ && list != list_of_backward_) {
    list_of_backward_ = list;
    backward_of_ = backward_instructions(list);
  }
  parameters_.begin_run(acquired_layers(list, stage_.layers_of_chunk, groups_of_chunk_));
  messages_.begin(schedule, [this](const Instruction& receive) { return shapes(receive); });
  for (place_ = 0; place_ < list.size(); ++place_) {
    const Instruction& instruction = list[place_];
    const std::string name = to_string(instruction);
    const ProfilerRange range(name.c_str());
    set_flight_instruction(name);
    waited_ = 0;
    const double start = steady_seconds();
    if (const size_t soon = place_ + static_cast<size_t>(stage_.choices.offload.horizon);
        offload_ && soon < list.size() && list[soon].op == Op::backward_input)
      fetch({list[soon].microbatch, list[soon].chunk});
    execute(instruction, weights_follow(list, place_));
    if (stage_.waits_for_device) wait_for(stage_.activations.device());
    result_.records.push_back({instruction, start, steady_seconds(), waited_, live_.now(), memory_totals().live});
  }
  set_flight_instruction("");
  messages_.finish();
  SL_ASSERT(kept_.empty() && gradients_.empty() && live_.now() == 0, "the schedule left work behind");
  activations_.clear();
  result_.peak_activation_bytes = live_.peak();
  return std::move(result_);
}

void Executor::execute(const Instruction& instruction, bool drain) {
  const Key at{instruction.microbatch, instruction.chunk};
  const Key before{at.microbatch, at.chunk - 1}, next{at.microbatch, at.chunk + 1};
  switch (instruction.op) {
    case Op::forward:
      return forward(at);
    case Op::backward_input:
      return backward_input(at, drain);
    case Op::backward_weight:
      return backward_weight(at);
    case Op::send_activation:
      return messages_.send(activations_.extract(next).mapped(), instruction);
    case Op::recv_activation:
      activations_[at] = receive(instruction);
      return;
    case Op::send_gradient:
      return messages_.send(gradients_.extract(before).mapped(), instruction);
    case Op::recv_gradient:
      gradients_[at] = receive(instruction);
      return;
    case Op::end_gradients:
      return;  // started layer by layer as they became ready; the store waits for them
    case Op::settle_gradients:
      return parameters_.settle_gradients();  // started in the same way
  }
}

MicrobatchContext Executor::context_of(Key at) const {
  return {.batch = &(*microbatches_)[at.microbatch],
          .mode = settings_.mode,
          .seed = settings_.seed,
          .step = settings_.step,
          .loss_scale = settings_.loss_scale};
}

void Executor::forward(Key at) {
  const MemoryScope scope(MemoryClass::activations);
  const bool train = settings_.mode == Mode::train;
  const auto& layers = layers_of(at);
  auto context = context_of(at);
  Border border;
  if (at.chunk > 0) border = std::move(activations_.extract(at).mapped());
  if (train) {
    auto& kept = kept_.emplace(at, std::vector<Kept>(layers.size())).first->second;
    const bool out = offload_ && moves_out(stage_.choices.offload, place_, backward_of_.at({at.microbatch, at.chunk}));
    for (const LayerGroup& group : groups_of_chunk_[at.chunk]) {
      Kept& first = kept[group.first];
      if (group.recomputed) {
        first.input = detached(border, false);
        count(first);
        for (size_t i = group.first; i < group.first + group.count; ++i) border = run_layer(layers[i], border, context);
      } else {
        border = keep_layer(layers[group.first], border, first, context);
      }
      if (out && (group.recomputed || stage_.choices.offload.everything)) move_out(first);
    }
  } else {
    for (const int layer : layers) border = run_layer(layer, border, context);
  }
  const auto microbatch = static_cast<size_t>(at.microbatch);
  if (at.chunk + 1 < schedule_->chunks()) {
    activations_[{at.microbatch, at.chunk + 1}] = detached(border, false);
  } else {
    result_.losses[microbatch] = context.loss;
    if (settings_.mode == Mode::generate) result_.outputs[microbatch] = border.at(0);
  }
}

// Without a graph.
Border Executor::run_layer(int layer, const Border& input, MicrobatchContext& context) {
  at::NoGradGuard no_grad;
  context.weight_grads = nullptr;
  context.cache = settings_.caches.empty() ? nullptr : settings_.caches[layer];
  parameters_.acquire(layer);
  auto output = stage_.layers[layer]->forward(input, context);
  parameters_.release(layer);
  return output;
}

// With a graph of its own, from the gradients of the output to `kept.input`.
Border Executor::keep_layer(int layer, const Border& input, Kept& kept, MicrobatchContext& context) {
  at::AutoGradMode grad(true);
  const auto index = static_cast<size_t>(layer);
  kept.input = detached(input, true);
  context.weight_grads = &kept.weight_grads;
  context.recompute_attention =
      !stage_.choices.recompute.empty() && stage_.choices.recompute[index].what == Recompute::What::attention;
  parameters_.acquire(layer);
  const bool makes_loss = layer + 1 == static_cast<int>(stage_.layers.size());
  if (makes_loss) parameters_.open_gradients(layer, false);  // and gradients with it
  const Border output = stage_.layers[index]->forward(kept.input, context);
  parameters_.release(layer);
  for (const auto& tensor : output) kept.gradients.push_back(torch::autograd::impl::gradient_edge(tensor));
  count(kept);
  return detached(output, false);
}

void Executor::recompute(Key at, const LayerGroup& group, std::vector<Kept>& kept) {
  const MemoryScope scope(MemoryClass::activations);
  auto context = context_of(at);
  Kept& first = kept[group.first];
  bring_back(first);
  Border border = std::move(first.input);
  for (size_t i = group.first; i < group.first + group.count; ++i)
    border = keep_layer(layers_of(at)[i], border, kept[i], context);
}

void Executor::backward_input(Key at, bool drain) {
  auto& kept = kept_.at(at);
  Border gradients;
  if (at.chunk + 1 < schedule_->chunks())
    gradients = std::move(gradients_.extract(at).mapped());
  else
    gradients.push_back(at::ones({}, stage_.activations.dtype(loss_type(stage_.activations))));

  const auto& groups = groups_of_chunk_[at.chunk];
  for (size_t g = groups.size(); g-- > 0;) {
    const LayerGroup& group = groups[g];
    if (group.recomputed) recompute(at, group, kept);
    for (size_t i = group.first + group.count; i-- > group.first;) {
      const int layer = layers_of(at)[i];
      open_gradients(layer, drain);
      gradients = layer_backward(layer, kept[i], gradients, drain);
      close_gradients(at, layer, drain);
    }
  }
  if (at.chunk > 0) gradients_[{at.microbatch, at.chunk - 1}] = std::move(gradients);
}

// From the gradients of its output to those of its input.
Border Executor::layer_backward(int layer, Kept& kept, const Border& d_output, bool drain) {
  const MemoryScope scope(MemoryClass::activations);
  bring_back(kept);
  kept.weight_grads.immediate = drain;
  parameters_.acquire(layer);
  torch::autograd::Engine::get_default_engine().execute(kept.gradients, d_output, /*keep_graph=*/false,
                                                        /*create_graph=*/false, /*accumulate_grad=*/true);
  parameters_.release(layer);
  Border result;
  for (const auto& input : kept.input) result.push_back(input.grad());
  kept.input.clear();
  kept.gradients.clear();
  count(kept);
  return result;
}

void Executor::backward_weight(Key at) {
  auto& kept = kept_.at(at);
  for (size_t i = kept.size(); i-- > 0;) {
    if (kept[i].weight_grads.immediate) continue;  // finished in backward_input
    const int layer = layers_of(at)[i];
    parameters_.open_gradients(layer, true);
    kept[i].weight_grads.drain();
    count(kept[i]);
    parameters_.close_gradients(layer, true, is_last(at));
  }
  kept_.erase(at);
}

const std::vector<int>& Executor::layers_of(Key at) const {
  return stage_.layers_of_chunk[at.chunk];
}

// Both halves of a chunk's backward come in ascending microbatch order.
bool Executor::is_last(Key at) const {
  return at.microbatch + 1 == schedule_->microbatches;
}

void Executor::open_gradients(int layer, bool drain) {
  parameters_.open_gradients(layer, false);
  if (drain) parameters_.open_gradients(layer, true);
}

void Executor::close_gradients(Key at, int layer, bool drain) {
  parameters_.close_gradients(layer, false, is_last(at));
  if (drain) parameters_.close_gradients(layer, true, is_last(at));
}

std::vector<KeptStorage> Executor::Kept::storages() const {
  auto tensors = saved_in_graph(gradients);
  const auto pairs = weight_grads.tensors();
  tensors.insert(tensors.end(), input.begin(), input.end());
  tensors.insert(tensors.end(), pairs.begin(), pairs.end());
  return storages_of(tensors);
}

// What is kept has changed.
void Executor::count(Kept& kept) {
  const int64_t bytes = bytes_of(kept.storages());
  live_.add(bytes - kept.bytes);
  kept.bytes = bytes;
}

void Executor::move_out(Kept& kept) {
  if (kept.bytes == 0) return;
  kept.away = std::make_unique<MovedOut>(kept.storages(), *offload_);
  count(kept);
}

void Executor::fetch(Key at) {
  const auto found = kept_.find(at);
  if (found == kept_.end()) return;
  const MemoryScope scope(MemoryClass::activations);
  for (auto& kept : found->second) {
    if (!kept.away) continue;
    kept.bytes = kept.away->fetch();
    live_.add(kept.bytes);
  }
}

void Executor::bring_back(Kept& kept) {
  if (!kept.away) return;
  const double start = steady_seconds();
  kept.away->take();
  waited_ += steady_seconds() - start;
  kept.away.reset();
}

Border Executor::receive(const Instruction& instruction) {
  const double start = steady_seconds();
  Border border = messages_.receive(instruction);
  waited_ += steady_seconds() - start;
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
