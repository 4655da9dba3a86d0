#include "models/program/trace/traced_run.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <set>
#include <utility>

#include "core/error.h"
#include "models/program/graph_flow.h"
#include "models/program/operators.h"
#include "models/program/trace/call_recorder.h"

namespace shardline {
namespace {

using c10::IValue;
using As = GraphArgument::As;

class RunMaker {
 public:
  explicit RunMaker(const TracedFunction& function)
      : function_(function),
        arguments_(function.argument_names.size()),
        given_(function.argument_names.size() + function.owned.size()) {}

  void give(const at::Tensor& tensor) { new_value(tensor); }

  // Counts in how many calls each owned tensor occurs. Call this with all calls before the first add().
  void count_uses(const std::vector<RecordedCall>& calls) {
    for (const auto& call : calls)
      if (const OwnedTensor* owned = first_owned(call.arguments)) ++uses_[owned].first;
  }

  void add(const RecordedCall& call) {
    GraphNode node{.name = call.op.name, .overload = call.op.overload_name};
    node.has_grad = call.has_grad;
    const auto op = find_operator(node.name, node.overload);
    if (!op) refuse(cat("calls ", node.text(), ", which is not an operator of this LibTorch"), "replace it");
    const c10::FunctionSchema& schema = op->schema();
    find_modules(node, call.arguments);
    check_arguments(node, call.arguments);
    for (size_t i = 0; i < call.arguments.size(); ++i) node.arguments.push_back(argument(call.arguments[i], node));
    const bool changes_buffer = schema.is_mutable() && is_change_of_buffer(node);
    if (schema.is_mutable() && !changes_buffer) make_functional(node, schema, call.arguments);
    const bool is_of_user = !node.name.starts_with("aten::");
    if (const auto why = is_of_user ? effect_of(*op) : refusal_of(node.name, node.overload); !why.empty())
      refuse(cat("calls ", node.text(), "; ", why), "leave it out or replace it");
    if (const auto why = draws_of(node); !why.empty())
      refuse(cat("calls ", node.text(), "; ", why), "leave its dropout out; call aten::dropout on its result instead");
    for (size_t i = 0; i < call.results.size(); ++i) add_results(node, i, call.results[i]);
    if (changes_buffer)
      for (const auto& result : node.results) buffers_.insert(result.value);
    run_.calls.push_back(std::move(node));
  }

  TracedRun end(const std::vector<at::Tensor>& results) {
    for (const auto& result : results) {
      const auto found = value_of_.find(result.unsafeGetTensorImpl());
      if (found == value_of_.end() || is_constant(found->second))
        refuse("returns a tensor that no operator makes", "return what it computes from its arguments");
      run_.results.push_back(found->second);
    }
    for (const auto& call : run_.calls)
      for (const auto& result : call.results) check_gradient(call, run_.values[result.value]);
    return std::move(run_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what, const std::string& advice) const {
    refuse_at({.modules = modules_}, what, advice);
  }
  [[noreturn]] void refuse_at(const GraphNode& call, const std::string& what, const std::string& advice) const {
    throw ConfigError(cat(function_.name, place_of(call), " ", what, "; ", advice));
  }

  bool is_constant(int value) const { return std::ranges::find(run_.constants, value) != run_.constants.end(); }

  int new_value(const at::Tensor& tensor) {
    const int value = std::ssize(run_.values);
    run_.values.push_back(tensor);
    value_of_[tensor.unsafeGetTensorImpl()] = value;
    return value;
  }

  // The first argument that the function owns (a parameter or buffer); null if there is none.
  const OwnedTensor* first_owned(const std::vector<IValue>& arguments) const {
    const auto owned = [&](const at::Tensor& tensor) -> const OwnedTensor* {
      const auto found = value_of_.find(tensor.unsafeGetTensorImpl());
      if (found == value_of_.end() || found->second < arguments_ || found->second >= given_) return nullptr;
      return &function_.owned[found->second - arguments_];
    };
    for (const auto& argument : arguments) {
      if (argument.isTensor())
        if (const auto* found = owned(argument.toTensor())) return found;
      if (!argument.isTensorList()) continue;
      for (const at::Tensor& tensor : argument.toTensorVector())
        if (const auto* found = owned(tensor)) return found;
    }
    return nullptr;
  }

  void find_modules(GraphNode& node, const std::vector<IValue>& arguments) {
    if (const OwnedTensor* owned = first_owned(arguments)) modules_ = modules_of(used_name(*owned));
    node.modules = modules_;
  }

  std::vector<GraphModule> modules_of(const std::string& name) const {
    std::vector<GraphModule> modules;
    for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
      const auto type = function_.module_types.find(name.substr(0, dot));
      if (type != function_.module_types.end()) modules.push_back({type->first, type->second});
    }
    return modules;
  }

  const std::string& used_name(const OwnedTensor& owned) {
    auto& [all, before] = uses_.at(&owned);
    const size_t use = before++;
    if (owned.other_names.empty()) return owned.name;
    if (all == owned.other_names.size() + 1) return use == 0 ? owned.name : owned.other_names[use - 1];
    const auto in_common = [&](const std::string& name) {
      const auto modules = modules_of(name);
      const auto same = [](const GraphModule& a, const GraphModule& b) { return a.path == b.path; };
      return std::ranges::mismatch(modules, modules_, same).in1 - modules.begin();
    };
    const std::string* best = &owned.name;
    for (const auto& name : owned.other_names)
      if (in_common(name) > in_common(*best)) best = &name;
    return *best;
  }

  void check_arguments(const GraphNode& node, const std::vector<IValue>& arguments) const {
    if (node.name == kBatchNorm && arguments[place_of_argument(node, "training")] != IValue(false))
      refuse("calls aten::batch_norm, whose result for a sample depends on the other samples of its batch",
             "use another norm, or this one in evaluation mode");
    if (node.name != "aten::index") return;
    for (const auto& index : arguments[1].toList())
      if (const IValue item = index.get(); item.isTensor() && item.toTensor().scalar_type() == at::kBool)
        refuse("indexes with a mask, so the sizes of later tensors depend on values", "use where or masked_fill");
  }

  // The value without a gradient that has the same storage, sizes and strides as this tensor; -1 if there is none.
  // torch::zeros and similar functions return a new tensor object around the storage that the operator allocated.
  int value_of_memory(const at::Tensor& tensor) const {
    const auto is_same = [&](const at::Tensor& known) {
      return known.has_storage() && tensor.has_storage() && known.storage().is_alias_of(tensor.storage()) &&
             known.scalar_type() == tensor.scalar_type() && known.sizes() == tensor.sizes() &&
             known.strides() == tensor.strides() && known.storage_offset() == tensor.storage_offset() &&
             !known.requires_grad() && !tensor.requires_grad();
    };
    const auto found = std::ranges::find_if(run_.values, is_same);
    return found == run_.values.end() ? -1 : int(found - run_.values.begin());
  }

  GraphArgument tensor_argument(const at::Tensor& tensor) {
    if (!tensor.defined()) return {};
    const auto found = value_of_.find(tensor.unsafeGetTensorImpl());
    if (found != value_of_.end()) return {.value = found->second};
    if (const int known = value_of_memory(tensor); known >= 0) return {.value = known};
    const int value = new_value(tensor);
    run_.constants.push_back(value);
    return {.value = value};
  }

  GraphArgument argument(const IValue& value, const GraphNode& node) {
    if (value.isTensor()) return tensor_argument(value.toTensor());
    if (value.isSymInt()) return {.constant = value.toSymInt().expect_int()};
    if (value.isGenerator()) refuse(cat("passes a generator to ", node.text()), "training draws all random numbers");
    if (value.isTensorList() || value.isOptionalTensorList()) {
      GraphArgument list{.is_list = true, .as = value.isTensorList() ? As::tensors : As::optional_tensors};
      for (const auto& item : value.toList()) {
        const IValue element = item.get();
        list.items.push_back(element.isTensor() ? tensor_argument(element.toTensor()) : GraphArgument());
      }
      return list;
    }
    return {.constant = value};
  }

  // Whether the call changes a whole buffer in place, and nothing else.
  bool is_change_of_buffer(const GraphNode& node) const {
    if (!node.name.starts_with("aten::") || !node.name.ends_with('_') || node.arguments.empty()) return false;
    const int value = node.arguments[0].value;
    const bool is_owned = value >= arguments_ && value < given_;
    return buffers_.contains(value) ||
           (is_owned && function_.owned[value - arguments_].kind == GraphInput::Kind::buffer);
  }

  // Replaces an in-place operator by the one that returns its result.
  void make_functional(GraphNode& node, const c10::FunctionSchema& schema, const std::vector<IValue>& arguments) {
    const std::string text = node.text();
    const bool changes_first = node.name.ends_with('_') && arguments.size() > 0 && arguments[0].isTensor();
    const std::string functional = node.name.substr(0, node.name.size() - 1);
    const auto op = changes_first ? find_operator(functional, node.overload) : std::nullopt;
    if (!op || op->schema().arguments().size() != schema.arguments().size())
      refuse(cat("calls ", text, ", which changes a tensor in place"), "use the operator that returns the result");
    const at::Tensor& changed = arguments[0].toTensor();
    const int value = node.arguments[0].value;
    if (value < given_) refuse(cat("changes an argument or a parameter with ", text), "change a copy of it");
    for (size_t i = 0; i < run_.values.size(); ++i)
      if (run_.values[i].unsafeGetTensorImpl() != changed.unsafeGetTensorImpl() && run_.values[i].has_storage() &&
          run_.values[i].storage().is_alias_of(changed.storage()))
        refuse(cat("changes a tensor with ", text, " although it has views"),
               "use the operator that returns the result");
    node.name = functional;
  }

  void add_results(GraphNode& node, int place, const IValue& result) {
    const auto add = [&](const at::Tensor& tensor, int item) {
      if (tensor.defined()) node.results.push_back({place, item, new_value(tensor)});
    };
    if (result.isTensor()) return add(result.toTensor(), -1);
    if (!result.isTensorList())
      refuse(cat("reads values of a tensor with ", node.text(), ", so which operators it calls may depend on them"),
             "compute with tensors only");
    const auto list = result.toTensorList();
    for (size_t i = 0; i < list.size(); ++i) add(list[i], i);
  }

  void check_gradient(const GraphNode& call, const at::Tensor& result) const {
    const auto& gradient = result.grad_fn();
    if (!gradient) {
      bool follows = false;
      for (const auto& argument : call.arguments)
        visit_values(argument, [&](int value) { follows |= run_.values[value].requires_grad(); });
      // LibTorch's own operators have gradients wherever possible.
      if (follows && call.has_grad && !call.name.starts_with("aten::") && result.is_floating_point())
        refuse_without_gradient(call);
      return;
    }
    // A torch::autograd::Function runs its forward without gradients and then gives its results its own gradient
    // function, which a graph of operators cannot express.
    if (!call.has_grad)
      refuse_at(
          call, cat("has a gradient of its own, ", gradient->name(), ", but a trace sees only its forward"),
          "apply the function as an operator: shardline::apply_function<F>(...) of <shardline/function.h> in place "
          "of F::apply(...), or an operator of your own (TORCH_LIBRARY) whose Autograd kernel applies it");
    if (gradient->name().ends_with("WarnNotImplemented")) refuse_without_gradient(call);
  }

  [[noreturn]] void refuse_without_gradient(const GraphNode& call) const {
    refuse_at(call, cat("calls ", call.text(), ", which has no gradient"),
              "register a kernel for Autograd (TORCH_LIBRARY_IMPL)");
  }

  const TracedFunction& function_;
  const int arguments_;
  const int given_;                   // number of values that no call computes: first arguments, then owned tensors
  std::vector<GraphModule> modules_;  // modules around the last call
  std::map<const OwnedTensor*, std::pair<size_t, size_t>> uses_;  // number of calls that use it: in all, and so far
  TracedRun run_;
  std::map<const at::TensorImpl*, int> value_of_;
  std::set<int> buffers_;  // values that are buffers after a change
};

}  // namespace

TracedRun run_traced(const TracedFunction& function, const std::vector<at::Tensor>& arguments) {
  RunMaker maker(function);
  for (const auto& tensor : arguments) maker.give(tensor);
  for (const auto& owned : function.owned) maker.give(owned.tensor);
  std::vector<at::Tensor> results;
  const auto calls = record_calls([&] { results = function.run(arguments); });
  maker.count_uses(calls);
  for (const auto& call : calls) maker.add(call);
  return maker.end(results);
}

}  // namespace shardline
