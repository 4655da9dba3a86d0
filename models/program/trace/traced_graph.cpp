#include "models/program/trace/traced_graph.h"

#include <ATen/ops/equal.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/error.h"
#include "models/program/operators.h"
#include "models/program/trace/aligned_copies.h"

namespace shardline {
namespace {

using c10::IValue;
using As = GraphArgument::As;

class GraphMaker {
 public:
  explicit GraphMaker(const TracedFunction& function)
      : function_(function), of_runs_(kTracedSizes.begin(), kTracedSizes.end()) {
    of_runs_.insert(of_runs_.end(), function.further_sizes.begin(), function.further_sizes.end());
    for (const auto& size : of_runs_) runs_.push_back(run(size, 0));
  }

  TracedGraph make() {
    TracedRun of_other_values = run(kTracedSizes[0], 1);
    align(of_other_values);
    check_calls(of_other_values);
    for (size_t i = 1; i < runs_.size(); ++i) check_calls(runs_[i]);
    for (size_t value = 0; value < first().values.size(); ++value) add_value(value);
    add_inputs();
    for (size_t i = 0; i < first().calls.size(); ++i) calls_.push_back(merged(i));
    Graph& graph = made_.graph;
    graph.nodes = std::move(sizes_);
    graph.nodes.insert(graph.nodes.end(), calls_.begin(), calls_.end());
    for (const int value : first().results) graph.outputs.push_back({cat(graph.outputs.size()), value});
    return std::move(made_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what, const std::string& advice) const {
    throw ConfigError(cat(function_.name, " ", what, "; ", advice));
  }

  TracedRun run(const BatchSize& size, int variant) const {
    try {
      return run_traced(function_, function_.arguments(size, variant));
    } catch (const c10::Error& error) {
      refuse(cat("fails with a batch of ", size.batch, " samples of ", size.length,
                 " tokens: ", error.what_without_backtrace()),
             "it must run with any number of samples of 1 to data.sequence_length tokens");
    }
  }
  const TracedRun& first() const { return runs_[0]; }

  // Adds the copies that only some runs make to all other runs.
  void align(TracedRun& of_other_values) {
    for (bool adds = true; adds;) {
      adds = align_copies(runs_[0], of_other_values);
      for (size_t i = 1; i < runs_.size(); ++i) adds |= align_copies(runs_[0], runs_[i]);
    }
  }

  void check_calls(const TracedRun& other) const {
    const auto same = [](const GraphNode& a, const GraphNode& b) {
      return a.text() == b.text() && a.has_grad == b.has_grad && a.arguments.size() == b.arguments.size() &&
             a.results.size() == b.results.size();
    };
    const auto& calls = first().calls;
    const auto [here, there] = std::ranges::mismatch(calls, other.calls, same);
    if (here == calls.end() && there == other.calls.end() && first().constants == other.constants) return;
    const size_t call = here - calls.begin();
    refuse(cat("calls ", here == calls.end() ? "nothing" : here->text(), " for one batch but ",
               there == other.calls.end() ? "nothing" : there->text(), " for another, as call ", call + 1,
               call > 0 ? place_of(calls[call - 1]) : ""),
           "branches must depend neither on sizes nor on values of its arguments");
  }

  // ---- sizes

  std::vector<int64_t> numbers(const std::function<int64_t(const TracedRun&)>& number) const {
    std::vector<int64_t> of_runs;
    for (const auto& run : runs_) of_runs.push_back(number(run));
    return of_runs;
  }

  SizeFormula formula(const std::vector<int64_t>& numbers, const std::function<std::string()>& where) const {
    const auto found = formula_of(of_runs_, numbers);
    if (found) return *found;
    std::string tried;
    for (size_t i = 0; i < numbers.size(); ++i)
      tried += cat(i > 0 ? ", " : "", numbers[i], " for ", text_of(of_runs_[i]));
    refuse(cat("has a size or a number in ", where(), " that does not follow from batch and length: ", tried),
           "sizes must be sums of multiples of batch, length and batch * length");
  }

  std::string text_of(const BatchSize& size) const {
    const bool has_target = function_.target_rows >= 0;
    return cat(size.batch, " x ", size.length, has_target ? cat(" and ", size.target) : "");
  }

  // The value for a number that depends on sizes: computed at the beginning of the graph.
  int value_of(const SizeFormula& formula) {
    const auto found = number_values_.find(formula);
    if (found != number_values_.end()) return found->second;
    int value = -1;
    const auto size_of = [&](int argument, int64_t dimension) {
      return add_number({.name = kSizeOf, .overload = "int"}, {{.value = argument}, {.constant = dimension}});
    };
    const auto product_with_batch = [&](const SizeFormula& other) {
      return add_number({.name = "_operator.mul", .is_operator = false},
                        {{.value = value_of({.by_batch = 1})}, {.value = value_of(other)}});
    };
    if (formula == SizeFormula{.by_batch = 1}) {
      value = size_of(function_.rows, 0);
    } else if (formula == SizeFormula{.by_length = 1}) {
      value = size_of(function_.rows, 1);
    } else if (formula == SizeFormula{.by_target = 1}) {
      value = size_of(function_.target_rows, 1);
    } else if (formula == SizeFormula{.by_rows = 1}) {
      value = product_with_batch({.by_length = 1});
    } else if (formula == SizeFormula{.by_target_rows = 1}) {
      value = product_with_batch({.by_target = 1});
    } else {
      value = sum_of(formula);
    }
    number_values_[formula] = value;
    return value;
  }

  int sum_of(const SizeFormula& formula) {
    std::optional<GraphArgument> sum;
    const auto add = [&](const GraphArgument& term) {
      sum = !sum ? term
                 : GraphArgument{.value = add_number({.name = "_operator.add", .is_operator = false}, {*sum, term})};
    };
    const auto add_multiple = [&](int64_t factor, const SizeFormula& of) {
      if (factor == 0) return;
      const GraphArgument once{.value = value_of(of)};
      add(factor == 1 ? once
                      : GraphArgument{.value = add_number({.name = "_operator.mul", .is_operator = false},
                                                          {once, {.constant = factor}})});
    };
    add_multiple(formula.by_rows, {.by_rows = 1});
    add_multiple(formula.by_target_rows, {.by_target_rows = 1});
    add_multiple(formula.by_batch, {.by_batch = 1});
    add_multiple(formula.by_length, {.by_length = 1});
    add_multiple(formula.by_target, {.by_target = 1});
    if (formula.fixed != 0) add({.constant = formula.fixed});
    return sum->value;
  }

  int add_number(GraphNode node, std::vector<GraphArgument> arguments) {
    const int value = std::ssize(made_.graph.values);
    made_.graph.values.push_back({.name = cat("size_", sizes_.size())});
    node.arguments = std::move(arguments);
    node.results = {{.value = value}};
    sizes_.push_back(std::move(node));
    return value;
  }

  // ---- values

  void add_value(size_t value) {
    const at::Tensor& tensor = first().values[value];
    GraphValue made{.name = cat("value_", value), .dtype = tensor.scalar_type()};
    for (const auto& run : runs_)
      if (run.values[value].dim() != tensor.dim() || run.values[value].scalar_type() != tensor.scalar_type())
        refuse(cat("computes ", what_makes(value), " with different dimensions or types for different sizes"),
               "compute the same for all sizes");
    for (int64_t d = 0; d < tensor.dim(); ++d) {
      const auto size = formula(numbers([&](const TracedRun& run) { return run.values[value].size(d); }),
                                [&] { return what_makes(value); });
      made.sizes.push_back(size.is_fixed() ? GraphSize{size.fixed, ""} : GraphSize{-1, size.text()});
    }
    made_.graph.values.push_back(std::move(made));
  }

  // "the result of aten::squeeze in blocks.0", for messages.
  std::string what_makes(size_t value) const {
    for (const auto& call : first().calls)
      for (const auto& result : call.results)
        if (std::cmp_equal(result.value, value)) return cat("the result of ", call.text(), place_of(call));
    return "a tensor";
  }

  void add_inputs() {
    std::vector<GraphInput>& inputs = made_.graph.inputs;
    for (const auto& name : function_.argument_names)
      inputs.push_back({GraphInput::Kind::user, name, int(inputs.size())});
    for (const auto& tensor : function_.owned) inputs.push_back({tensor.kind, tensor.name, int(inputs.size())});
    for (const int value : first().constants) {
      const at::Tensor& tensor = first().values[value];
      for (const auto& run : runs_)
        if (!at::equal(run.values[value], tensor))
          refuse(cat("has a tensor ", tensor.sizes(), " that no operator makes and that changes with the sizes"),
                 "make it with operators, such as arange, from sizes of the arguments");
      inputs.push_back({GraphInput::Kind::constant, cat("constant_", made_.constants.size()), value});
      made_.constants.emplace(inputs.back().name, tensor.detach());
    }
  }

  // ---- calls

  GraphNode merged(size_t call) {
    GraphNode node = first().calls[call];
    for (size_t i = 0; i < node.arguments.size(); ++i) {
      std::vector<const GraphArgument*> same;
      for (const auto& run : runs_) same.push_back(&run.calls[call].arguments[i]);
      node.arguments[i] = merged(same, node);
    }
    return node;
  }

  // One argument as it appears in all runs.
  GraphArgument merged(const std::vector<const GraphArgument*>& of_runs, const GraphNode& node) {
    GraphArgument merged_argument = *of_runs[0];
    const auto differs = [&](const GraphArgument* other) {
      return other->value != merged_argument.value || other->items.size() != merged_argument.items.size() ||
             other->constant.tagKind() != merged_argument.constant.tagKind();
    };
    if (std::ranges::any_of(of_runs, differs)) refuse_argument(node);
    for (size_t i = 0; i < merged_argument.items.size(); ++i) {
      std::vector<const GraphArgument*> items;
      for (const auto* argument : of_runs) items.push_back(&argument->items[i]);
      merged_argument.items[i] = merged(items, node);
    }
    const auto& constant = merged_argument.constant;
    if (std::ranges::all_of(of_runs, [&](const auto* other) { return same_constant(other->constant, constant); }))
      return merged_argument;
    if (constant.isInt()) return number([&](size_t run) { return of_runs[run]->constant.toInt(); }, node);
    if (!constant.isIntList()) refuse_argument(node);
    GraphArgument list{.is_list = true, .as = As::ints};
    for (size_t i = 0; i < constant.toIntVector().size(); ++i)
      list.items.push_back(number([&](size_t run) { return of_runs[run]->constant.toIntVector().at(i); }, node));
    return list;
  }

  GraphArgument number(const std::function<int64_t(size_t)>& of_run, const GraphNode& node) {
    std::vector<int64_t> numbers;
    for (size_t i = 0; i < runs_.size(); ++i) numbers.push_back(of_run(i));
    const SizeFormula found = formula(numbers, [&] { return node.text() + place_of(node); });
    if (found.is_fixed()) return {.constant = found.fixed};
    return {.value = value_of(found)};
  }

  static bool same_constant(const IValue& a, const IValue& b) {
    if (a.isIntList() && b.isIntList() && a.toIntVector().size() != b.toIntVector().size()) return false;
    return a.equals(b).toBool();
  }

  [[noreturn]] void refuse_argument(const GraphNode& node) const {
    refuse(cat("calls ", node.text(), " with different arguments for different batches", place_of(node)),
           "only whole numbers may depend on the sizes, and nothing on the values of its arguments");
  }

  const TracedFunction& function_;
  std::vector<BatchSize> of_runs_;
  std::vector<TracedRun> runs_;  // one for each of the sizes
  TracedGraph made_;
  std::vector<GraphNode> sizes_, calls_;
  std::map<SizeFormula, int> number_values_;
};

}  // namespace

TracedGraph trace_graph(const TracedFunction& function) {
  return GraphMaker(function).make();
}

}  // namespace shardline
