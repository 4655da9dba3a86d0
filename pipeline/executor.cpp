#include "pipeline/executor.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/flight_ring.h"

namespace shardline {
namespace {

Border detached(const Border& border, bool requires_grad) {
  Border result;
  for (const auto& tensor : border) result.push_back(tensor.detach().requires_grad_(requires_grad));
  return result;
}

}  // namespace

Executor::Executor(StageLayers& stage, Communicator& pp, ParameterStore& parameters)
    : stage_(stage), pp_(pp), parameters_(parameters) {}

RunResult Executor::run(const Schedule& schedule, const std::vector<Microbatch>& microbatches,
                        const RunSettings& settings) {
  SL_ASSERT(schedule.microbatches == static_cast<int>(microbatches.size()));
  SL_ASSERT(schedule.stages == pp_.size(), "a schedule of ", schedule.stages, " stages on ", pp_.size());
  schedule_ = &schedule;
  microbatches_ = &microbatches;
  settings_ = settings;
  result_ = {};
  result_.losses.resize(microbatches.size());
  result_.outputs.resize(microbatches.size());

  const auto& list = schedule.instructions[static_cast<size_t>(pp_.rank())];
  for (size_t i = 0; i < list.size(); ++i) {
    const Instruction& instruction = list[i];
    const Key at{instruction.microbatch, instruction.chunk};
    set_flight_instruction(to_string(instruction));
    const double start = steady_seconds(), waited = waited_seconds();
    switch (instruction.op) {
      case Op::forward:
        forward(at);
        break;
      case Op::backward_input: {
        // Where the weight gradients follow at once, each is made while its tensors are in cache.
        const Instruction weights{Op::backward_weight, at.microbatch, at.chunk};
        backward_input(at, i + 1 < list.size() && list[i + 1] == weights);
        break;
      }
      case Op::backward_weight:
        backward_weight(at);
        break;
      case Op::send_activation:
        send(activations_.at({at.microbatch, at.chunk + 1}), instruction);
        break;
      case Op::recv_activation:
        activations_[at] = receive(instruction, at.chunk - 1);
        break;
      case Op::send_gradient:
        send(gradients_.at({at.microbatch, at.chunk - 1}), instruction);
        break;
      case Op::recv_gradient:
        gradients_[at] = receive(instruction, at.chunk);
        break;
      case Op::reduce_gradients:
        break;  // started layer by layer as they became ready; the store waits for them
    }
    const bool is_message = instruction.op > Op::backward_weight;
    result_.records.push_back({instruction, start, steady_seconds(), is_message ? waited_seconds() - waited : 0});
    if (instruction.op == Op::send_activation) activations_.erase({at.microbatch, at.chunk + 1});
    if (instruction.op == Op::send_gradient) gradients_.erase({at.microbatch, at.chunk - 1});
  }
  set_flight_instruction("");
  for (auto& [work, border] : sends_) work->wait();
  sends_.clear();
  SL_ASSERT(kept_.empty() && gradients_.empty(), "the schedule left work behind");
  activations_.clear();
  return std::move(result_);
}

void Executor::forward(Key at) {
  const bool train = settings_.mode == Mode::train;
  at::AutoGradMode grad(train);
  MicrobatchContext context{.batch = &(*microbatches_)[static_cast<size_t>(at.microbatch)],
                            .mode = settings_.mode,
                            .seed = settings_.seed,
                            .step = settings_.step,
                            .loss_scale = settings_.loss_scale};
  Border border;
  if (at.chunk > 0) border = std::move(activations_.extract(at).mapped());
  auto& kept = kept_[at];
  for (int layer : stage_.layers_of_chunk[static_cast<size_t>(at.chunk)]) {
    auto& mine = kept.emplace_back();
    mine.input = detached(border, train);
    context.weight_grads = train ? &mine.weight_grads : nullptr;
    context.cache = settings_.caches.empty() ? nullptr : settings_.caches[static_cast<size_t>(layer)];
    parameters_.acquire(layer);
    mine.output = stage_.layers[static_cast<size_t>(layer)]->forward(mine.input, context);
    parameters_.release(layer);
    border = mine.output;
    if (!train) kept.pop_back();
  }
  if (!train) kept_.erase(at);
  const auto microbatch = static_cast<size_t>(at.microbatch);
  if (at.chunk + 1 < schedule_->chunks()) {
    activations_[{at.microbatch, at.chunk + 1}] = detached(border, false);
  } else {
    result_.losses[microbatch] = context.loss;
    if (settings_.mode == Mode::generate) result_.outputs[microbatch] = border.at(0);
  }
}

void Executor::backward_input(Key at, bool drain) {
  auto& kept = kept_.at(at);
  Border gradients;
  if (at.chunk + 1 < schedule_->chunks())
    gradients = std::move(gradients_.extract(at).mapped());
  else
    for (const auto& loss : kept.back().output) gradients.push_back(at::ones_like(loss));

  const auto& layers = stage_.layers_of_chunk[static_cast<size_t>(at.chunk)];
  for (size_t i = layers.size(); i-- > 0;) {
    auto& mine = kept[i];
    mine.weight_grads.immediate = drain;
    parameters_.acquire(layers[i]);
    torch::autograd::backward(mine.output, gradients);
    parameters_.release(layers[i]);
    gradients.clear();
    for (const auto& input : mine.input) gradients.push_back(input.grad());
    mine.input.clear();
    mine.output.clear();
    if (drain) finish_layer(at, layers[i]);
  }
  if (at.chunk > 0) gradients_[{at.microbatch, at.chunk - 1}] = std::move(gradients);
  if (drain) kept.clear();
}

void Executor::backward_weight(Key at) {
  auto& kept = kept_.at(at);
  const auto& layers = stage_.layers_of_chunk[static_cast<size_t>(at.chunk)];
  for (size_t i = kept.size(); i-- > 0;) {
    kept[i].weight_grads.drain();
    finish_layer(at, layers[i]);
  }
  kept_.erase(at);
}

void Executor::finish_layer(Key at, int layer) {
  if (at.microbatch + 1 == schedule_->microbatches) parameters_.gradients_ready(layer);
}

void Executor::send(const Border& border, const Instruction& instruction) {
  for (const auto& tensor : border) {
    auto whole = tensor.detach().contiguous();
    sends_.emplace_back(pp_.send(whole, instruction.peer, {.what = to_string(instruction.op)}), Border{whole});
  }
  std::erase_if(sends_, [](auto& entry) { return entry.first->done(); });
}

Border Executor::receive(const Instruction& instruction, int border_of_chunk) {
  const int last = stage_.layers_of_chunk[static_cast<size_t>(border_of_chunk)].back();
  const auto& batch = (*microbatches_)[static_cast<size_t>(instruction.microbatch)];
  const int64_t rows = border_rows(batch.tokens(), stage_.t_degree, stage_.sequence_parallel);
  Border border;
  for (const auto& tensor : stage_.spec->layers[static_cast<size_t>(last)].output) {
    border.push_back(at::empty(bind_shape(tensor, rows), stage_.activations));
    pp_.recv(border.back(), instruction.peer, {.what = to_string(instruction.op)})->wait();
  }
  return border;
}

}  // namespace shardline
