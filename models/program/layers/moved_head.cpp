#include "models/program/layers/moved_head.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "models/program/operators.h"

namespace shardline {
namespace {

const GraphArgument& argument(const GraphNode& node, const char* name) {
  return node.arguments[place_of_argument(node, name)];
}

// The name of the argument that has the sizes of a view; null for other calls.
const char* sizes_of_view(const GraphNode& node) {
  if (node.name == "aten::view" || node.name == "aten::_unsafe_view") return "size";
  return node.name == "aten::reshape" ? "shape" : nullptr;
}

class Mover {
 public:
  Mover(const Program& program, const GraphPart& part) : program_(program), part_(part) {}

  std::optional<MovedHead> move() {
    const auto& terms = program_.loss.terms;
    if (terms.size() != 1 || terms[0].kind != ProgramLossTerm::Kind::cross_entropy) return {};
    int value = terms[0].input;
    if (terms[0].target >= 0 && program_.graph().values[value].sizes.size() != 2) return {};
    std::vector<int> forms;  // calls, the last one first
    while (is_form(value)) {
      forms.push_back(producer(value));
      value = node(forms.back()).arguments[0].value;
    }
    const int product = producer(value);
    if (product < 0 || node(product).name != "aten::linear" || !are_own(product, forms)) return {};
    const GraphNode& linear = node(product);
    const auto weight = parameter(argument(linear, "weight"));
    const GraphArgument& bias = argument(linear, "bias");
    const int x = argument(linear, "input").value;
    if (!weight || x < 0 || (bias.value >= 0 && !parameter(bias))) return {};
    MovedHead head{.graph = program_.graph(), .part = part_, .weight = *weight};
    if (bias.value >= 0) head.bias = parameter(bias);
    const int64_t features = program_.graph().values[argument(linear, "weight").value].sizes[1].number;
    GraphNode& left = head.graph.nodes[product];
    left.name = "aten::alias";
    left.arguments = {{.value = x}};
    for (const int form : forms) set_features(head.graph.nodes[form], features);
    return head;
  }

 private:
  const GraphNode& node(int number) const { return program_.graph().nodes[number]; }
  // -1 if the part does not make the value.
  int producer(int value) const {
    const int made_by = program_.flow.producer[value];
    return std::ranges::binary_search(part_.nodes, made_by) ? made_by : -1;
  }
  int64_t classes(int value) const {
    const auto& sizes = program_.graph().values[value].sizes;
    return sizes.empty() || !sizes.back().expression.empty() ? -1 : sizes.back().number;
  }

  // Whether the value consists of unchanged rows of its call's first argument.
  bool is_form(int value) const {
    const int made_by = producer(value);
    if (made_by < 0 || node(made_by).arguments.empty() || node(made_by).arguments[0].value < 0) return false;
    const GraphNode& call = node(made_by);
    const int before = call.arguments[0].value;
    if (classes(value) <= 0 || classes(before) != classes(value)) return false;
    const auto& values = program_.graph().values;
    if (const char* sizes = sizes_of_view(call)) return last_size(argument(call, sizes)) == classes(value);
    if (call.name == "aten::slice") {
      const c10::IValue& dimension = argument(call, "dim").constant;
      const int64_t dimensions = std::ssize(values[before].sizes);
      return dimension.isInt() && dimension.toInt() != -1 && dimension.toInt() != dimensions - 1;
    }
    return (call.name == "aten::to" && values[before].dtype == values[value].dtype) ||
           call.name == "aten::contiguous" || call.name == "aten::clone" || call.name == "aten::alias";
  }

  // The last of a view's sizes if it is a number.
  static int64_t last_size(const GraphArgument& sizes) {
    if (!sizes.is_list)
      return sizes.constant.isIntList() && !sizes.constant.toIntVector().empty() ? sizes.constant.toIntVector().back()
                                                                                 : -1;
    const bool is_number = !sizes.items.empty() && sizes.items.back().value < 0 && sizes.items.back().constant.isInt();
    return is_number ? sizes.items.back().constant.toInt() : -1;
  }

  static void set_features(GraphNode& call, int64_t features) {
    const char* name = sizes_of_view(call);
    if (!name) return;
    GraphArgument& sizes = call.arguments[place_of_argument(call, name)];
    if (sizes.is_list) {
      sizes.items.back().constant = features;
      return;
    }
    auto list = sizes.constant.toIntVector();
    list.back() = features;
    sizes.constant = c10::List<int64_t>(list);
  }

  // Whether nothing else in the part reads the results of these calls, and no call changes them.
  bool are_own(int product, const std::vector<int>& forms) const {
    std::set<int> values = {node(product).results[0].value};
    for (const int form : forms) values.insert(node(form).results[0].value);
    for (const int value : values)
      if (program_.flow.changes.contains(program_.flow.storage[value])) return false;
    const std::set<int> calls(forms.begin(), forms.end());
    for (const int number : part_.nodes) {
      bool reads = false;
      for (const auto& given : node(number).arguments)
        visit_values(given, [&](int value) { reads |= values.contains(value); });
      if (reads && !calls.contains(number)) return false;
    }
    return std::ranges::none_of(
        part_.outputs, [&](int value) { return value != program_.loss.terms[0].input && values.contains(value); });
  }

  // The place of a parameter of the last layer.
  std::optional<size_t> parameter(const GraphArgument& given) const {
    const auto* input = given.value < 0 ? nullptr : program_.input_of(given.value);
    if (!input || input->kind != GraphInput::Kind::parameter) return {};
    const auto& names = program_.layers.back().parameters;
    const auto found = std::ranges::find(names, input->name);
    return found == names.end() ? std::nullopt : std::optional<size_t>(found - names.begin());
  }

  const Program& program_;
  const GraphPart& part_;
};

}  // namespace

std::optional<MovedHead> moved_head(const Program& program, const GraphPart& part) {
  return Mover(program, part).move();
}

}  // namespace shardline
