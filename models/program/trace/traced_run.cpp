#include "models/program/trace/traced_run.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/function.h>

#include <set>

#include "core/error.h"
#include "models/program/operators.h"
#include "models/program/trace/call_recorder.h"

namespace shardline {
namespace {

using c10::IValue;
using As = GraphArgument::As;

class RunMaker {
 public:
  RunMaker(const std::string& name, size_t arguments, const std::vector<OwnedTensor>& owned)
      : name_(name), given_(arguments + owned.size()) {}

  void give(const at::Tensor& tensor) { new_value(tensor); }

  void add(const RecordedCall& call) {
    GraphNode node{.name = call.op.name, .overload = call.op.overload_name};
    node.has_grad = call.has_grad;
    const auto op = find_operator(node.name, node.overload);
    if (!op) refuse(cat("calls ", node.text(), ", which is not an operator of this LibTorch"), "replace it");
    const c10::FunctionSchema& schema = op->schema();
    check_arguments(node, call.arguments);
    for (size_t i = 0; i < call.arguments.size(); ++i) node.arguments.push_back(argument(call.arguments[i], node));
    if (schema.is_mutable()) make_functional(node, schema, call.arguments);
    if (const auto why = refusal_of(node.name, node.overload); !why.empty())
      refuse(cat("calls ", node.text(), "; ", why), "leave it out or replace it");
    for (size_t i = 0; i < call.results.size(); ++i) add_results(node, i, call.results[i]);
    run_.calls.push_back(std::move(node));
  }

  TracedRun end(const std::vector<at::Tensor>& results) {
    for (const auto& result : results) {
      const auto found = value_of_.find(result.unsafeGetTensorImpl());
      if (found == value_of_.end() || is_constant(found->second))
        refuse("returns a tensor that no operator makes", "return what it computes from its arguments");
      run_.results.push_back(found->second);
    }
    check_gradients();
    return std::move(run_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what, const std::string& advice) const {
    throw ConfigError(cat(name_, " ", what, "; ", advice));
  }

  bool is_constant(int value) const { return std::ranges::find(run_.constants, value) != run_.constants.end(); }

  int new_value(const at::Tensor& tensor) {
    const int value = std::ssize(run_.values);
    run_.values.push_back(tensor);
    value_of_[tensor.unsafeGetTensorImpl()] = value;
    return value;
  }

  void check_arguments(const GraphNode& node, const std::vector<IValue>& arguments) const {
    if (node.name != "aten::index") return;
    for (const auto& index : arguments[1].toList())
      if (const IValue item = index.get(); item.isTensor() && item.toTensor().scalar_type() == at::kBool)
        refuse("indexes by a mask, so that the sizes of what follows depend on values", "use where or masked_fill");
  }

  GraphArgument tensor_argument(const at::Tensor& tensor) {
    if (!tensor.defined()) return {};
    const auto found = value_of_.find(tensor.unsafeGetTensorImpl());
    if (found != value_of_.end()) return {.value = found->second};
    const int value = new_value(tensor);
    run_.constants.push_back(value);
    return {.value = value};
  }

  GraphArgument argument(const IValue& value, const GraphNode& node) {
    if (value.isTensor()) return tensor_argument(value.toTensor());
    if (value.isSymInt()) return {.constant = value.toSymInt().expect_int()};
    if (value.isGenerator()) refuse(cat("gives a generator to ", node.text()), "training draws all random numbers");
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

  // Replaces an operator that changes its first argument by the one that returns the result.
  void make_functional(GraphNode& node, const c10::FunctionSchema& schema, const std::vector<IValue>& arguments) {
    const std::string text = node.text();
    const bool changes_first = node.name.ends_with('_') && arguments.size() > 0 && arguments[0].isTensor();
    const std::string functional = node.name.substr(0, node.name.size() - 1);
    const auto op = changes_first ? find_operator(functional, node.overload) : std::nullopt;
    if (!op || op->schema().arguments().size() != schema.arguments().size())
      refuse(cat("calls ", text, ", which changes a tensor in place"), "use the operator that returns the result");
    const at::Tensor& changed = arguments[0].toTensor();
    const int value = node.arguments[0].value;
    if (value < given_) refuse(cat("changes an argument, a parameter or a buffer with ", text), "change a copy of it");
    for (size_t i = 0; i < run_.values.size(); ++i)
      if (run_.values[i].unsafeGetTensorImpl() != changed.unsafeGetTensorImpl() && run_.values[i].has_storage() &&
          run_.values[i].storage().is_alias_of(changed.storage()))
        refuse(cat("changes a tensor with ", text, " of which there are views"),
               "use the operator that returns the result");
    node.name = functional;
  }

  void add_results(GraphNode& node, int place, const IValue& result) {
    const auto add = [&](const at::Tensor& tensor, int item) {
      if (tensor.defined()) node.results.push_back({place, item, new_value(tensor)});
    };
    if (result.isTensor()) return add(result.toTensor(), -1);
    if (!result.isTensorList())
      refuse(cat("reads values of a tensor with ", node.text(), ", so that what it calls may depend on them"),
             "compute with tensors only");
    const auto list = result.toTensorList();
    for (size_t i = 0; i < list.size(); ++i) add(list[i], i);
  }

  // A torch::autograd::Function runs its forward without gradients and then gives its results a gradient function of
  // its own, which a graph of operators does not have.
  void check_gradients() const {
    for (const auto& call : run_.calls)
      for (const auto& result : call.results) {
        const auto& gradient = run_.values[result.value].grad_fn();
        if (!call.has_grad && gradient)
          refuse(cat("has a gradient of its own, ", gradient->name(), ", which tracing loses"),
                 "write the function with differentiable operators");
      }
  }

  const std::string& name_;
  const int given_;  // values that no call makes
  TracedRun run_;
  std::map<const at::TensorImpl*, int> value_of_;
};

}  // namespace

TracedRun run_traced(const std::string& name, const std::vector<at::Tensor>& arguments,
                     const std::vector<OwnedTensor>& owned,
                     const std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>& run) {
  RunMaker maker(name, arguments.size(), owned);
  for (const auto& tensor : arguments) maker.give(tensor);
  for (const auto& tensor : owned) maker.give(tensor.tensor);
  std::vector<at::Tensor> results;
  for (const auto& call : record_calls([&] { results = run(arguments); })) maker.add(call);
  return maker.end(results);
}

}  // namespace shardline
