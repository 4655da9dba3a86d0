#include "models/program/interpreter.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>

#include "core/error.h"
#include "models/graph/autocast_mode.h"
#include "models/program/operators.h"
#include "models/program/ops/attention_op.h"
#include "models/program/ops/dropped_attention.h"
#include "models/program/ops/number_functions.h"
#include "models/program/ops/own_operators.h"

namespace shardline {
namespace {

using As = GraphArgument::As;
using c10::IValue;

constexpr size_t kDropoutOfAttention = 4;  // place of the argument dropout_p

c10::TypeKind kind_of(const c10::Argument& argument) {
  const auto type = argument.real_type();
  const auto* optional = type->castRaw<c10::OptionalType>();
  return optional ? optional->getElementType()->kind() : type->kind();
}

bool is_constant(const GraphArgument& argument) {
  return argument.value < 0 && !argument.is_list;
}

// Whether a call has no tensor arguments and creates new tensors on the device it is given.
bool makes_new_tensors(const c10::FunctionSchema& schema) {
  return std::ranges::none_of(schema.arguments(), [](const c10::Argument& argument) {
    const auto type = argument.type();
    return kind_of(argument) == c10::TypeKind::TensorType || type->isSubtypeOf(*c10::ListType::ofTensors());
  });
}

}  // namespace

// A call whose values are in slots.
struct Interpreter::Step {
  enum class Kind { operation, dropout, attention, size, numbers, own_call };

  const GraphNode* node = nullptr;
  Kind kind = Kind::operation;
  std::optional<c10::OperatorHandle> op;
  OwnOperator own_operator = nullptr;  // tried before op
  NumberFunction numbers;
  OwnCall own_call;
  std::vector<GraphArgument> arguments;     // values are given by slot numbers
  std::vector<GraphNode::Result> results;   // likewise
  std::vector<std::optional<IValue>> calm;  // by argument: its value if nothing is random; empty: all are as given
  std::vector<int> freed;                   // slots that are not read afterwards
  int site = 0;                             // number of a random call

  void find_calm_arguments() {
    const auto& wants = op->schema().arguments();
    const auto set = [&](size_t argument, IValue value) {
      calm.resize(wants.size());
      calm[argument] = std::move(value);
    };
    for (size_t i = 0; i < wants.size(); ++i) {
      if (wants[i].name() == "train" || wants[i].name() == "training") set(i, false);
      if (wants[i].name() == "dropout_p") set(i, 0.0);
    }
  }

  void replace_constants(at::ScalarType floating, at::Device device) {
    const auto& wants = op->schema().arguments();
    const bool is_new = makes_new_tensors(op->schema());
    for (size_t i = 0; i < wants.size(); ++i) {
      GraphArgument& argument = arguments[i];
      if (!is_constant(argument)) continue;
      IValue& constant = argument.constant;
      if (kind_of(wants[i]) == c10::TypeKind::ScalarTypeType && constant.isInt() &&
          constant.toInt() == int64_t(at::kFloat))
        constant = int64_t(floating);
      if (kind_of(wants[i]) == c10::TypeKind::DeviceObjType && (constant.isDevice() || is_new)) constant = device;
    }
  }
};

// The values during a run.
struct Interpreter::Slots {
  std::vector<IValue> values;

  IValue value_of(const GraphArgument& argument) const {
    if (argument.is_list) return list_of(argument);
    if (argument.value < 0) return argument.constant;
    const IValue& value = values[argument.value];
    if (argument.as == As::tensor && value.isScalar()) return at::native::wrapped_scalar_tensor(value.toScalar());
    if (argument.as == As::floating && value.isInt()) return double(value.toInt());
    return value;
  }

  IValue list_of(const GraphArgument& argument) const {
    if (argument.as == As::ints) {
      c10::List<int64_t> list;
      for (const auto& item : argument.items) list.push_back(value_of(item).toInt());
      return list;
    }
    if (argument.as == As::tensors) {
      c10::List<at::Tensor> list;
      for (const auto& item : argument.items) list.push_back(value_of(item).toTensor());
      return list;
    }
    SL_ASSERT(argument.as == As::optional_tensors, "a list of another type");
    c10::List<std::optional<at::Tensor>> list;
    for (const auto& item : argument.items) list.push_back(value_of(item).toOptional<at::Tensor>());
    return list;
  }
};

Interpreter::~Interpreter() = default;
Interpreter::Interpreter(Interpreter&&) noexcept = default;

Interpreter::Interpreter(const Graph& graph, const GraphPart& part, at::ScalarType floating, at::Device device,
                         const OwnCalls& own_calls)
    : inputs_(part.inputs.size()), device_(device.type()) {
  std::map<int, int> slot_of;
  std::map<int, size_t> last_use;  // slot -> step
  const auto new_slot = [&](int value) {
    const int slot = std::ssize(slot_of);
    SL_ASSERT(slot_of.emplace(value, slot).second, graph.values[value].name, " occurs twice");
    return slot;
  };
  const auto used_slot = [&](int value) {
    const auto found = slot_of.find(value);
    SL_ASSERT(found != slot_of.end(), "a part of the program does not have ", graph.values[value].name);
    return found->second;
  };
  const std::function<void(GraphArgument&)> place = [&](GraphArgument& argument) {
    if (argument.value >= 0) last_use[argument.value = used_slot(argument.value)] = steps_.size();
    for (auto& item : argument.items) place(item);
  };
  for (const int value : part.inputs) new_slot(value);
  int sites = 0;
  for (const int index : part.nodes) {
    const GraphNode& node = graph.nodes[index];
    Step step{.node = &node, .arguments = node.arguments, .results = node.results};
    for (auto& argument : step.arguments) place(argument);
    if (node.is_operator) {
      step.kind = node.name == kDropout                            ? Step::Kind::dropout
                  : node.name == kAttention                        ? Step::Kind::attention
                  : node.name == kSizeOf && node.overload == "int" ? Step::Kind::size
                                                                   : Step::Kind::operation;
      if (step.kind == Step::Kind::dropout || step.kind == Step::Kind::attention) step.site = sites++;
      step.op = find_operator(node.name, node.overload);
      step.own_operator = own_operator(node.name, node.overload);
      step.find_calm_arguments();
      step.replace_constants(floating, device);
    } else if (const auto own = own_calls.find(node.name); own != own_calls.end()) {
      step.kind = Step::Kind::own_call;
      step.own_call = own->second;
    } else {
      step.kind = Step::Kind::numbers;
      step.numbers = number_function(node.name);
    }
    for (auto& result : step.results) last_use[result.value = new_slot(result.value)] = steps_.size();
    steps_.push_back(std::move(step));
  }
  for (const int value : part.outputs) last_use.erase(outputs_.emplace_back(used_slot(value)));
  for (const auto& [slot, step] : last_use) steps_[step].freed.push_back(slot);
  slots_ = slot_of.size();
}

std::vector<IValue> Interpreter::run(std::vector<IValue> inputs, const RandomCalls* random,
                                     const ProgramBatch* batch) const {
  SL_ASSERT(inputs.size() == inputs_, inputs.size(), " values for ", inputs_, " inputs");
  Slots slots{std::move(inputs)};
  slots.values.resize(slots_);
  torch::jit::Stack stack;
  for (const Step& step : steps_) {
    std::optional<at::NoGradGuard> no_grad;
    if (!step.node->has_grad) no_grad.emplace();
    std::optional<AutocastMode> autocast;
    if (const auto& wanted = step.node->autocast) autocast.emplace(device_, wanted->half);
    stack.clear();
    for (const auto& argument : step.arguments) stack.push_back(slots.value_of(argument));
    if (!random)
      for (size_t i = 0; i < step.calm.size(); ++i)
        if (step.calm[i]) stack[i] = *step.calm[i];
    try {
      compute(step, stack, random, batch);
    } catch (const c10::Error& error) {
      throw RunError(cat("the program's call to ", step.node->text(), " failed: ", error.what_without_backtrace()));
    }
    for (const auto& result : step.results) {
      if (std::cmp_greater_equal(result.place, stack.size()))
        throw RunError(cat(step.node->text(), " returned too few results"));
      IValue& made = stack[result.place];
      if (result.item < 0) {
        slots.values[result.value] = made.isSymInt() ? IValue(made.toSymInt().expect_int()) : std::move(made);
        continue;
      }
      const auto list = made.toTensorList();
      if (std::cmp_greater_equal(result.item, list.size()))
        throw RunError(cat("the program's call to ", step.node->text(), " returned ", list.size(),
                           " tensors, but returned more when the program was exported"));
      slots.values[result.value] = at::Tensor(list[result.item]);
    }
    for (const int slot : step.freed) slots.values[slot] = {};
  }
  std::vector<IValue> outputs;
  for (const int slot : outputs_) outputs.push_back(slots.values[slot]);
  return outputs;
}

// Replaces the arguments on the stack by the results.
void Interpreter::compute(const Step& step, torch::jit::Stack& stack, const RandomCalls* random,
                          const ProgramBatch* batch) {
  switch (step.kind) {
    case Step::Kind::operation:
      if (!step.own_operator || !step.own_operator(stack)) step.op->callBoxed(stack);
      return;
    case Step::Kind::numbers:
      stack = {step.numbers(stack)};
      return;
    case Step::Kind::own_call:
      SL_ASSERT(batch, step.node->name, " without a batch");
      stack = {step.own_call(stack, *batch)};
      return;
    case Step::Kind::size:
      stack = {stack[0].toTensor().size(stack[1].toInt())};
      return;
    case Step::Kind::attention:
      return attend(step, stack, random);
    case Step::Kind::dropout: {
      const double probability = stack[1].toDouble();
      const bool drops = random && stack[2].toBool() && probability > 0;
      stack = {drops ? random->dropout(stack[0].toTensor(), probability, step.site) : stack[0].toTensor()};
    }
  }
}

void Interpreter::attend(const Step& step, torch::jit::Stack& stack, const RandomCalls* random) {
  const double probability = stack[kDropoutOfAttention].toDouble();
  std::optional<AttentionDropout> dropout = AttentionDropout();
  const bool drops = random && probability > 0;
  if (drops) dropout = random->attention_dropout ? random->attention_dropout(probability, step.site) : std::nullopt;
  if (dropout && is_own_attention(stack, *dropout)) {
    stack = {own_attention(stack, *dropout)};
    return;
  }
  if (!drops) return step.op->callBoxed(stack);
  stack = {dropped_attention(stack, [&](const at::Tensor& x) { return random->dropout(x, probability, step.site); })};
}

}  // namespace shardline
