#include "engine/profile/op_recorder.h"

#include <memory>
#include <string_view>

#include "core/comm/clock.h"
#include "core/error.h"

namespace shardline {
namespace {

thread_local OpRecorder* recorder = nullptr;  // callbacks are plain functions

// Whether this is what autograd's engine announces around the ops of a backward pass.
bool is_node(const at::RecordFunction& op) {
  return std::string_view(op.name()).starts_with("autograd::");
}

}  // namespace

OpRecorder::OpRecorder() {
  SL_ASSERT(!recorder, "two OpRecorders in one thread");
  recorder = this;
  handle_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(begin, end).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
}

OpRecorder::~OpRecorder() {
  at::removeCallback(handle_);
  recorder = nullptr;
}

std::unique_ptr<at::ObserverContext> OpRecorder::begin(const at::RecordFunction& op) {
  if (!recorder || is_node(op) || recorder->depth_++ > 0) return nullptr;
  Event event{.seconds = steady_seconds(), .name = op.name(), .shapes = {}};
  for (const auto& input : op.inputs()) {
    const bool shaped = input.isTensor() && input.toTensor().defined();
    event.shapes.push_back(shaped ? input.toTensor().sizes().vec() : std::vector<int64_t>());
  }
  recorder->events_.push_back(std::move(event));
  return nullptr;
}

void OpRecorder::end(const at::RecordFunction& op, at::ObserverContext*) {
  if (recorder && !is_node(op)) --recorder->depth_;
}

double flops_of(const OpRecorder::Event& event) {
  const auto size = [&](size_t argument, size_t dimension) -> double {
    return event.shapes.at(argument).at(dimension);
  };
  // FLOPs of a product of a [m, k] and b; `other` is the dimension of b that a does not have.
  const auto product = [&](size_t a, size_t b, size_t other) { return 2 * size(a, 0) * size(a, 1) * size(b, other); };
  // FLOPs of this many products of attention on [batch, heads, length, head_dim].
  const auto attention = [&](double products) {
    return products * size(0, 0) * size(0, 1) * size(0, 2) * size(0, 2) * size(0, 3);
  };
  const auto& name = event.name;
  if (name == "shardline::linear_forward") return product(0, 1, 0);
  if (name == "shardline::linear_input_gradient" || name == "shardline::add_weight_gradient" || name == "aten::mm")
    return product(0, 1, 1);
  if (name == "aten::addmm" || name == "aten::addmm_") return product(1, 2, 1);
  if (name == "aten::bmm") return 2 * size(0, 0) * size(0, 1) * size(0, 2) * size(1, 2);
  if (name == "shardline::attention_forward" || name == "aten::_scaled_dot_product_flash_attention_for_cpu" ||
      name == "aten::scaled_dot_product_attention")
    return attention(2);
  if (name == "shardline::attention_backward" || name == "aten::_scaled_dot_product_flash_attention_for_cpu_backward")
    return attention(5);
  return 0;
}

}  // namespace shardline
