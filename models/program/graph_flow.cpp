#include "models/program/graph_flow.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "core/error.h"
#include "models/program/operators.h"

namespace shardline {
namespace {

bool share(const c10::AliasInfo* a, const c10::AliasInfo* b) {
  if (!a || !b) return false;
  return std::ranges::any_of(a->beforeSets(), [&](const auto& set) { return b->beforeSets().contains(set); });
}

// For a result that is a list, Tensor(a)[], the schema has the alias information at its items.
const c10::AliasInfo* alias_of(const c10::Argument& argument) {
  const auto* alias = argument.alias_info();
  return alias && !alias->containedTypes().empty() ? &alias->containedTypes().front() : alias;
}

class FlowFinder {
 public:
  explicit FlowFinder(const Graph& graph) : graph_(graph) {
    const size_t values = graph.values.size();
    flow_.producer.assign(values, -1);
    flow_.is_trained.assign(values, false);
    for (size_t value = 0; value < values; ++value) flow_.storage.push_back(value);
  }

  GraphFlow find() {
    for (const auto& input : graph_.inputs)
      if (input.kind == GraphInput::Kind::parameter) flow_.is_trained[input.value] = true;
    for (size_t node = 0; node < graph_.nodes.size(); ++node) add(graph_.nodes[node], node);
    // A view that was made before its memory got trained values has these, too.
    for (size_t value = 0; value < graph_.values.size(); ++value)
      if (trained_storage_.contains(flow_.storage[value])) flow_.is_trained[value] = true;
    return std::move(flow_);
  }

 private:
  void add(const GraphNode& node, int number) {
    bool trained = node.name == kDropout || node.name == kAttention;
    for (const auto& argument : node.arguments)
      visit_values(argument, [&](int value) {
        trained |= flow_.is_trained[value] || trained_storage_.contains(flow_.storage[value]);
      });
    for (const auto& result : node.results) {
      flow_.producer[result.value] = number;
      flow_.is_trained[result.value] = trained;
    }
    if (!node.is_operator) return;
    if (node.name == kDropout) return join(node, 0, 0);  // in evaluation it returns its input
    const auto op = find_operator(node.name, node.overload);
    SL_ASSERT(op, node.text());
    const auto& wants = op->schema().arguments();
    const auto& makes = op->schema().returns();
    for (size_t i = 0; i < wants.size(); ++i) {
      const auto* alias = alias_of(wants[i]);
      if (!alias) continue;
      for (size_t result = 0; result < makes.size(); ++result)
        if (share(alias, alias_of(makes[result]))) join(node, i, result);
      if (!alias->isWrite()) continue;
      visit_values(node.arguments[i], [&](int value) {
        const int storage = flow_.storage[value];
        flow_.changes[storage].push_back(number);
        if (trained) trained_storage_.insert(storage);
      });
    }
  }

  void join(const GraphNode& node, size_t argument, size_t place) {
    const int value = node.arguments[argument].value;
    if (value < 0) return;
    for (const auto& result : node.results)
      if (std::cmp_equal(result.place, place)) flow_.storage[result.value] = flow_.storage[value];
  }

  const Graph& graph_;
  GraphFlow flow_;
  std::set<int> trained_storage_;
};

// Operators whose result has the type of their first argument if the other arguments have it, too.
constexpr std::string_view kKeepTypes =
    " add clamp div exp gelu hardswish hardtanh leaky_relu mul neg relu relu6 rsqrt sigmoid silu sqrt sub tanh ";

// Whether all tensor arguments of a call are floating-point numbers of one type.
bool has_one_type(const Graph& graph, const GraphNode& node) {
  const auto type = graph.values[node.arguments[0].value].dtype;
  bool is_one = type && c10::isFloatingType(*type);
  for (const auto& argument : node.arguments)
    visit_values(argument,
                 [&](int value) { is_one &= !graph.values[value].dtype || graph.values[value].dtype == type; });
  return is_one;
}

// The name of the same call without the in-place change; empty if there is none.
std::string functional_name(const GraphNode& node) {
  const std::string prefix = "aten::";
  if (!node.is_operator || !node.name.starts_with(prefix) || !node.name.ends_with("_") || node.results.size() != 1)
    return "";
  const std::string name = node.name.substr(0, node.name.size() - 1);
  if (kKeepTypes.find(cat(' ', name.substr(prefix.size()), ' ')) == std::string_view::npos) return "";
  const auto op = find_operator(name, node.overload), in_place = find_operator(node.name, node.overload);
  if (!op || !in_place || op->schema().is_mutable()) return "";
  const auto &wants = op->schema().arguments(), &has = in_place->schema().arguments();
  if (wants.size() != has.size()) return "";
  for (size_t i = 0; i < has.size(); ++i)
    if (wants[i].name() != has[i].name()) return "";
  return name;
}

// The size that a call of sym_size reads; null for other calls.
const GraphSize* size_of_call(const Graph& graph, const GraphNode& node) {
  if (node.text() != "aten::sym_size.int" || node.arguments[0].value < 0 || !node.arguments[1].constant.isInt())
    return nullptr;
  const std::vector<GraphSize>& sizes = graph.values[node.arguments[0].value].sizes;
  const int64_t place = node.arguments[1].constant.toInt(), counted = place < 0 ? place + std::ssize(sizes) : place;
  return counted >= 0 && counted < std::ssize(sizes) ? &sizes[counted] : nullptr;
}

}  // namespace

int GraphFlow::origin(const Graph& graph, int value) const {
  static const std::set<std::string> forms = {"aten::view", "aten::reshape",   "aten::flatten",   "aten::to",
                                              "aten::t",    "aten::transpose", "aten::contiguous"};
  while (value >= 0 && producer[value] >= 0) {
    const GraphNode& node = graph.nodes[producer[value]];
    const int before = node.arguments.empty() ? -1 : node.arguments[0].value;
    const bool is_whole_slice =
        node.name == "aten::slice" && before >= 0 && graph.values[before].sizes == graph.values[value].sizes;
    if (!is_whole_slice && !forms.contains(node.name)) break;
    value = before;
  }
  return value;
}

std::vector<int> GraphFlow::changes_before(int value, int end) const {
  const auto found = changes.find(storage[value]);
  if (found == changes.end()) return {};
  return {found->second.begin(), std::ranges::lower_bound(found->second, end)};
}

GraphPart GraphFlow::part(const Graph& graph, const std::vector<int>& wanted, int begin, int end,
                          const IsGiven& is_given) const {
  std::set<int> nodes, inputs;
  std::vector<int> open_nodes;
  const auto add_node = [&](int node) {
    if (nodes.insert(node).second) open_nodes.push_back(node);
  };
  const auto want = [&](int value, int before) {
    const bool given = producer[value] < 0 || (producer[value] < begin && is_given(value));
    if (given)
      inputs.insert(value);
    else
      add_node(producer[value]);
    for (const int change : changes_before(value, before))
      if (change >= begin || !is_given(value)) add_node(change);
  };
  for (const int value : wanted) want(value, end);
  while (!open_nodes.empty()) {
    const int node = open_nodes.back();
    open_nodes.pop_back();
    for (const auto& argument : graph.nodes[node].arguments)
      visit_values(argument, [&](int value) { want(value, node); });
  }
  return {{nodes.begin(), nodes.end()}, {inputs.begin(), inputs.end()}, wanted};
}

std::vector<int64_t> GraphFlow::widths_of_cuts(const Graph& graph, const FeaturesOf& features_of) const {
  std::vector<int> last_use(producer.size(), -1);
  for (int node = 0; node < std::ssize(graph.nodes); ++node)
    for (const auto& argument : graph.nodes[node].arguments)
      visit_values(argument, [&](int value) { last_use[value] = node; });
  std::vector<int64_t> widths(graph.nodes.size() + 1);
  for (int value = 0; value < std::ssize(producer); ++value) {
    if (producer[value] < 0 || last_use[value] < 0) continue;
    const int64_t features = features_of(value);
    for (int place = producer[value] + 1; place <= last_use[value] && features != 0; ++place)
      widths[place] = features > 0 && widths[place] >= 0 ? widths[place] + features : -1;
  }
  return widths;
}

GraphFlow flow_of(const Graph& graph) {
  return FlowFinder(graph).find();
}

void make_calls_functional(Graph& graph) {
  const GraphFlow flow = flow_of(graph);
  std::vector<int> readers(graph.values.size());
  std::set<int> own;  // results of calls that were made functional
  for (const auto& node : graph.nodes)
    for (const auto& argument : node.arguments) visit_values(argument, [&](int value) { ++readers[value]; });
  for (const auto& output : graph.outputs) ++readers[output.value];
  for (auto& node : graph.nodes) {
    const std::string name = functional_name(node);
    const int changed = name.empty() ? -1 : node.arguments[0].value;
    if (changed < 0 || flow.producer[changed] < 0 || readers[changed] != 1 || !has_one_type(graph, node)) continue;
    if (flow.storage[changed] != changed && !own.contains(changed)) continue;  // a view
    node.name = name;
    own.insert(node.results[0].value);
  }
}

void make_idle_dropouts_aliases(Graph& graph) {
  for (auto& node : graph.nodes) {
    if (node.name != kDropout) continue;
    const auto constant = [&](const char* name) { return node.arguments[place_of_argument(node, name)].constant; };
    const bool is_off = constant("train").isBool() && !constant("train").toBool();
    const bool is_never = constant("p").isScalar() && constant("p").toScalar().equal(0);
    if (node.arguments[0].value < 0 || (!is_off && !is_never)) continue;
    node.name = "aten::alias";
    node.arguments.resize(1);
  }
}

void make_views_reshapes(Graph& graph) {
  const GraphFlow flow = flow_of(graph);
  for (auto& node : graph.nodes) {
    if (node.text() != "aten::view") continue;  // another overload changes the type
    const int viewed = node.arguments[0].value;
    if (viewed >= 0 && flow.is_trained[viewed] && !flow.changes.contains(flow.storage[viewed]))
      node.name = "aten::reshape";
  }
}

void make_fixed_sizes_numbers(Graph& graph) {
  std::map<int, int64_t> fixed;  // by value
  const auto replace = [&](GraphArgument& argument, const auto& self) -> void {
    if (const auto size = fixed.find(argument.value); size != fixed.end() && argument.as == GraphArgument::As::given) {
      argument.value = -1;
      argument.constant = size->second;
    }
    for (auto& item : argument.items) self(item, self);
  };
  for (auto& node : graph.nodes) {
    for (auto& argument : node.arguments) replace(argument, replace);
    if (const auto* size = size_of_call(graph, node); size && size->expression.empty())
      fixed[node.results[0].value] = size->number;
  }
}

void take_sizes_from(Graph& graph, int value) {
  const std::vector<GraphSize>& known = graph.values[value].sizes;
  for (auto& node : graph.nodes) {
    const auto* size = size_of_call(graph, node);
    if (!size || size->expression.empty()) continue;
    if (std::ranges::find(graph.inputs, node.arguments[0].value, &GraphInput::value) != graph.inputs.end()) continue;
    const auto same = std::ranges::find(known, *size);
    if (same == known.end()) continue;
    node.arguments[0].value = value;
    node.arguments[1].constant = int64_t{same - known.begin()};
  }
}

}  // namespace shardline
