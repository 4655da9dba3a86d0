#include "models/program/operators.h"

#include <algorithm>
#include <set>

#include "core/error.h"

namespace shardline {

std::optional<c10::OperatorHandle> find_operator(const std::string& name, const std::string& overload) {
  return c10::Dispatcher::singleton().findSchema({name, overload});
}

bool is_product(const std::string& name) {
  static const std::set<std::string> products = {"aten::linear", "aten::addmm",   "aten::matmul",      "aten::mm",
                                                 "aten::bmm",    "aten::baddbmm", "aten::einsum",      "aten::conv1d",
                                                 "aten::conv2d", "aten::conv3d",  "aten::convolution", kGroupedProduct};
  return products.contains(name);
}

namespace {

constexpr const char* kDraws = "it draws from torch's random generator";

bool is_training_flag(const std::string& name) {
  return name == "train" || name == "training";
}

bool is_probability(const std::string& name) {
  return name == "dropout" || name == "dropout_p";
}

// Whether the only tensor that is changed is `self`, as in "aten::add_".
bool writes_to_itself(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  for (size_t i = 0; i < arguments.size(); ++i)
    if (arguments[i].alias_info() && arguments[i].alias_info()->isWrite() && (i > 0 || arguments[i].name() != "self"))
      return false;
  return true;
}

// Whether the operator has an argument that stops it from drawing, such as `train` and `dropout` of aten::lstm.
bool may_be_told_not_to_draw(const c10::FunctionSchema& schema) {
  return std::ranges::any_of(schema.arguments(), [](const c10::Argument& argument) {
    return is_training_flag(argument.name()) || is_probability(argument.name());
  });
}

bool is_off(const std::string& name, const c10::IValue& value) {
  if (is_training_flag(name)) return value.isBool() && !value.toBool();
  return is_probability(name) && value.isScalar() && value.toScalar().equal(0);
}

}  // namespace

std::string refusal_of(const std::string& name, const std::string& overload) {
  if (!name.starts_with("aten::")) return "it is not an operator of ATen";
  if (name == "aten::from_file") return "it reads files";
  const auto op = find_operator(name, overload);
  if (!op) return "this LibTorch has no such operator";
  if (name == kDropout || name == kAttention) return "";
  return effect_of(*op);
}

std::string effect_of(const c10::OperatorHandle& op) {
  if (op.hasTag(at::Tag::nondeterministic_seeded) && !may_be_told_not_to_draw(op.schema())) return kDraws;
  if (op.hasTag(at::Tag::inplace_view)) return "it changes the sizes of a tensor in place";
  if (op.schema().is_mutable() && !writes_to_itself(op.schema()))
    return "it writes to a tensor other than its first argument";
  return "";
}

std::string draws_of(const GraphNode& node) {
  if (node.name == kDropout || node.name == kAttention) return "";
  const auto op = find_operator(node.name, node.overload);
  if (!op || !op->hasTag(at::Tag::nondeterministic_seeded)) return "";
  const auto& wants = op->schema().arguments();
  for (size_t i = 0; i < node.arguments.size(); ++i) {
    const GraphArgument& argument = node.arguments[i];
    if (argument.value < 0 && !argument.is_list && is_off(wants[i].name(), argument.constant)) return "";
  }
  return cat(kDraws, " unless its dropout is 0");
}

int place_of_argument(const GraphNode& node, const char* argument) {
  const auto op = find_operator(node.name, node.overload);
  SL_ASSERT(op, node.text());
  const auto place = op->schema().argumentIndexWithName(argument);
  SL_ASSERT(place, node.text(), " has no argument ", argument);
  return *place;
}

}  // namespace shardline
