#include "models/program/operators.h"

#include "core/error.h"

namespace shardline {

std::optional<c10::OperatorHandle> find_operator(const std::string& name, const std::string& overload) {
  return c10::Dispatcher::singleton().findSchema({name, overload});
}

namespace {

// Whether the only tensor that is changed is `self`, as in "aten::add_".
bool writes_to_itself(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  for (size_t i = 0; i < arguments.size(); ++i)
    if (arguments[i].alias_info() && arguments[i].alias_info()->isWrite() && (i > 0 || arguments[i].name() != "self"))
      return false;
  return true;
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
  if (op.hasTag(at::Tag::nondeterministic_seeded)) return "it draws from torch's random generator";
  if (op.hasTag(at::Tag::inplace_view)) return "it changes the sizes of a tensor in place";
  if (op.schema().is_mutable() && !writes_to_itself(op.schema()))
    return "it writes to a tensor other than its first argument";
  return "";
}

int place_of_argument(const GraphNode& node, const char* argument) {
  const auto op = find_operator(node.name, node.overload);
  SL_ASSERT(op, node.text());
  const auto place = op->schema().argumentIndexWithName(argument);
  SL_ASSERT(place, node.text(), " has no argument ", argument);
  return *place;
}

}  // namespace shardline
