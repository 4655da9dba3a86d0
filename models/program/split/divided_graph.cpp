#include "models/program/split/divided_graph.h"

#include <ATen/core/List.h>

#include <functional>
#include <limits>

#include "core/error.h"
#include "models/program/operators.h"

namespace shardline {

std::optional<DividedDimension> divided_dimension(const Atoms& atoms, const Dimensions& dimensions,
                                                  const std::set<int>& divided) {
  std::optional<DividedDimension> found;
  for (int i = 0; i < std::ssize(dimensions); ++i) {
    int64_t before = 1;
    for (const int atom : atoms.resolved(dimensions[i])) {
      if (divided.contains(atom)) {
        SL_ASSERT(!found, "a tensor with two divided dimensions");
        found = DividedDimension{.dimension = i, .before = before, .count = atoms.size(atom)};
      } else if (found && found->dimension == i) {
        found->after *= atoms.size(atom);
      }
      before *= atoms.size(atom);
    }
  }
  return found;
}

namespace {

class Divider {
 public:
  Divider(const Graph& graph, const ProgramDimensions& found, const std::set<int>& divided, const GraphPart& whole,
          int ranks, int rank)
      : graph_(graph), found_(found), divided_(divided), whole_(whole), ranks_(ranks), rank_(rank) {}

  DividedPart divide() {
    for (const int value : whole_.inputs) made_.part.inputs.push_back(new_value(value));
    int site = 0;
    for (const int index : whole_.nodes) {
      const GraphNode& node = graph_.nodes[index];
      if (node.name == kDropout || node.name == kAttention) note_dropped(index, site++);
      divide(index);
    }
    for (const int value : whole_.outputs) {
      made_.part.outputs.push_back(own_.at(value));
      made_.outputs.push_back(of_value(value));
    }
    return std::move(made_);
  }

 private:
  std::optional<DividedDimension> divided(const Dimensions& dimensions) const {
    return divided_dimension(found_.atoms, dimensions, divided_);
  }
  std::optional<DividedDimension> of_value(int value) const {
    const auto known = found_.of_value.find(value);
    return known == found_.of_value.end() ? std::nullopt : divided(known->second);
  }
  std::optional<DividedDimension> of_reading(const Reading& reading) const {
    const Dimensions* dimensions = found_.read_at(graph_, reading);
    return dimensions ? divided(*dimensions) : std::nullopt;
  }
  Range mine(const DividedDimension& of) const { return split_range(of.count, ranks_, rank_); }
  int64_t own_size(const DividedDimension& of) const { return of.size_of(mine(of)); }

  // Probabilities of attention have the heads of its queries.
  void note_dropped(int index, int site) {
    const auto of = of_reading({index, 0});
    if (!of) return;
    const int64_t rank = std::ssize(*found_.read_at(graph_, {index, 0}));
    if ((graph_.nodes[index].name == kDropout || of->dimension < rank - 2)) made_.dropped[site] = *of;
  }

  // ---- new values and nodes

  int new_value(int whole) {
    made_.graph.values.push_back(graph_.values[whole]);
    return own_[whole] = std::ssize(made_.graph.values) - 1;
  }
  int new_value_like(int whole, const char* of) {
    GraphValue value = graph_.values[whole];
    value.name += of;
    made_.graph.values.push_back(std::move(value));
    return std::ssize(made_.graph.values) - 1;
  }

  void add(GraphNode node) {
    made_.part.nodes.push_back(std::ssize(made_.graph.nodes));
    made_.graph.nodes.push_back(std::move(node));
  }

  static GraphArgument given(int value) { return {.constant = {}, .value = value, .items = {}}; }
  static GraphArgument constant(c10::IValue value) { return {.constant = std::move(value), .items = {}}; }

  // A call whose one result is like `whole`.
  int call(const GraphNode& from, const char* name, const char* overload, std::vector<GraphArgument> arguments,
           int whole, const char* of, bool is_operator = true) {
    GraphNode node{.name = name,
                   .overload = overload,
                   .is_operator = is_operator,
                   .arguments = std::move(arguments),
                   .results = {},
                   .modules = from.modules,
                   .has_grad = from.has_grad,
                   .autocast = from.autocast};
    const int value = new_value_like(whole, of);
    node.results = {{.value = value}};
    add(std::move(node));
    return value;
  }

  // ---- what a divided call reads

  int entered(const GraphNode& node, int whole) {
    const auto [known, is_new] = entered_.try_emplace(whole, -1);
    if (is_new) known->second = call(node, kEnterRanks, "", {given(own_.at(whole))}, whole, " entered", false);
    return known->second;
  }

  // The rank's part of what every rank has whole.
  int own_part(const GraphNode& node, int whole, const DividedDimension& of) {
    const Range range = mine(of);
    const int64_t d = of.dimension;
    const int apart = call(node, "aten::unflatten", "int",
                           {given(own_.at(whole)), constant(d), constant(c10::List<int64_t>({-1, of.count, of.after}))},
                           whole, " apart");
    const int part = call(node, "aten::slice", "Tensor",
                          {given(apart), constant(d + 1), constant(range.begin), constant(range.end()), constant(1)},
                          whole, " part");
    return call(node, "aten::flatten", "using_ints", {given(part), constant(d), constant(d + 2)}, whole, " own");
  }

  // ---- a node

  void place(GraphArgument& argument, const Reading& at, const std::map<Reading, int>& replaced) const {
    if (argument.value >= 0) {
      const auto other = replaced.find(at);
      argument.value = other == replaced.end() ? own_.at(argument.value) : other->second;
    }
    for (int item = 0; item < std::ssize(argument.items); ++item)
      place(argument.items[item], {at.node, at.argument, item}, replaced);
  }

  bool is_divided(int index) const {
    bool divided = false;
    visit_readings(graph_, index, [&](const Reading& reading, int) { divided |= of_reading(reading).has_value(); });
    for (const auto& result : graph_.nodes[index].results) divided |= of_value(result.value).has_value();
    return divided;
  }

  void divide(int index) {
    const GraphNode& whole = graph_.nodes[index];
    GraphNode node = whole;
    std::map<Reading, int> replaced;
    const bool is_split = is_divided(index);
    const auto summed = found_.summed.find(index);
    const auto sum = is_split && summed != found_.summed.end() ? divided({summed->second}) : std::nullopt;
    const int bias = sum ? place_of_bias(whole) : -1;
    if (is_split)
      visit_readings(graph_, index, [&](const Reading& reading, int value) {
        const auto of = of_reading(reading);
        const auto dtype = graph_.values[value].dtype;
        const bool is_trained = found_.of_value.contains(value);
        if (is_trained && !of && reading.argument != bias && dtype && c10::isFloatingType(*dtype))
          replaced[reading] = entered(whole, value);
        if (!is_trained && of) replaced[reading] = own_part(whole, value, *of);
      });
    for (int i = 0; i < std::ssize(node.arguments); ++i) place(node.arguments[i], {index, i}, replaced);
    if (sum) return add_summed(whole, std::move(node), *sum, bias);
    if (is_split) set_sizes(index, node);
    for (auto& result : node.results) result.value = new_value(result.value);
    add(std::move(node));
  }

  static int place_of_bias(const GraphNode& node) {
    if (node.name == "aten::linear") return place_of_argument(node, "bias");
    return node.name == "aten::addmm" ? place_of_argument(node, "self") : -1;
  }

  // node: `whole` with the rank's arguments.
  void add_summed(const GraphNode& whole, GraphNode node, const DividedDimension& sum, int bias) {
    const int result = whole.results[0].value;
    if (node.name == "aten::embedding") return add_lookup(whole, std::move(node), sum);
    const GraphArgument added = bias >= 0 ? node.arguments[bias] : GraphArgument{.constant = {}, .items = {}};
    if (node.name == "aten::addmm") {
      node.name = "aten::mm";
      node.arguments = {node.arguments[place_of_argument(whole, "mat1")],
                        node.arguments[place_of_argument(whole, "mat2")]};
    } else if (bias >= 0) {
      node.arguments[bias] = constant({});
    }
    const int partial = new_value_like(result, " partial");
    node.results = {{.value = partial}};
    add(std::move(node));
    const int total = call(whole, kAddOverRanks, "", {given(partial)}, result, " sum", false);
    own_[result] = added.value < 0
                       ? total
                       : call(whole, "aten::add", "Tensor", {given(total), added, constant(1)}, result, " with bias");
  }

  // Words of other ranks give zeros.
  void add_lookup(const GraphNode& whole, GraphNode node, const DividedDimension& words) {
    const Range range = mine(words);
    const int table = place_of_argument(whole, "weight"), indices = place_of_argument(whole, "indices"),
              padding = place_of_argument(whole, "padding_idx");
    const int ids = whole.arguments[indices].value, result = whole.results[0].value;
    const auto on_ids = [&](const char* name, const char* overload, std::vector<GraphArgument> arguments,
                            const char* of) { return call(whole, name, overload, std::move(arguments), ids, of); };
    const int local =
        on_ids("aten::sub", "Scalar", {node.arguments[indices], constant(range.begin), constant(1)}, " local");
    const int below = on_ids("aten::lt", "Scalar", {given(local), constant(0)}, " below");
    const int above = on_ids("aten::ge", "Scalar", {given(local), constant(range.length)}, " above");
    const int foreign = on_ids("aten::logical_or", "", {given(below), given(above)}, " foreign");
    const int known = on_ids("aten::masked_fill", "Scalar", {given(local), given(foreign), constant(0)}, " known");
    const int rows_of_foreign = on_ids("aten::unsqueeze", "", {given(foreign), constant(-1)}, " foreign rows");
    const int64_t padded = node.arguments[padding].constant.toInt() - range.begin;
    const bool has_padding = padded >= 0 && padded < range.length;
    const int rows = call(
        whole, "aten::embedding", "",
        {node.arguments[table], given(known), constant(has_padding ? padded : -1), constant(false), constant(false)},
        result, " rows");
    const int own =
        call(whole, "aten::masked_fill", "Scalar", {given(rows), given(rows_of_foreign), constant(0)}, result, " own");
    own_[result] = call(whole, kAddOverRanks, "", {given(own)}, result, " sum", false);
  }

  // ---- sizes in arguments

  // Sets a size among others. One that the program computes is a multiple of how many ranks divide.
  void set(GraphArgument& sizes, int64_t place, const GraphNode& whole, const DividedDimension& of) {
    if (!sizes.is_list) {
      auto list = sizes.constant.toIntVector();
      if (list[place] != -1) list[place] = own_size(of);
      sizes.constant = c10::List<int64_t>(list);
      return;
    }
    GraphArgument& item = sizes.items[place];
    if (item.value < 0) {
      if (item.constant.toInt() != -1) item.constant = own_size(of);
      return;
    }
    const int result = whole.results[0].value;
    const int units = call(whole, "_operator.floordiv", "", {item, constant(of.count)}, result, " units", false);
    item =
        given(call(whole, "_operator.mul", "", {given(units), constant(mine(of).length)}, result, " own units", false));
  }

  void set_sizes(int index, GraphNode& node) {
    if (node.results.empty()) return;
    const auto of = of_value(graph_.nodes[index].results[0].value);
    if (!of) return;
    const auto argument = [&](const char* name) -> GraphArgument& {
      return node.arguments[place_of_argument(node, name)];
    };
    const auto along = [&](const char* name) {
      const int64_t dimension = argument(name).constant.toInt();
      return dimension < 0 ? dimension + std::ssize(*found_.read_at(graph_, {index, 0})) : dimension;
    };
    if (node.name == "aten::view" || node.name == "aten::_unsafe_view" || node.name == "aten::expand")
      set(argument("size"), of->dimension, graph_.nodes[index], *of);
    if (node.name == "aten::reshape") set(argument("shape"), of->dimension, graph_.nodes[index], *of);
    if (node.name == "aten::unflatten") {
      GraphArgument& sizes = argument("sizes");
      const int64_t place = of->dimension - along("dim");
      const int64_t count = sizes.is_list ? std::ssize(sizes.items) : std::ssize(sizes.constant.toIntVector());
      if (place >= 0 && place < count) set(sizes, place, graph_.nodes[index], *of);
    }
    if ((node.name == "aten::split" || node.name == "aten::split_with_sizes") && along("dim") == of->dimension) {
      GraphArgument& sizes = argument(node.name == "aten::split" ? "split_size" : "split_sizes");
      if (sizes.constant.isInt())
        sizes.constant = own_size(*of);
      else
        sizes.constant = c10::List<int64_t>(std::vector<int64_t>(sizes.constant.toIntVector().size(), own_size(*of)));
    }
    if (node.name == "aten::slice" && along("dim") == of->dimension) set_slice(index, node, *of);
  }

  void set_slice(int index, GraphNode& node, const DividedDimension& of) const {
    GraphArgument& start = node.arguments[place_of_argument(node, "start")];
    GraphArgument& end = node.arguments[place_of_argument(node, "end")];
    const int64_t whole = of_reading({index, 0})->size();
    int64_t first = start.value < 0 && start.constant.isInt() ? start.constant.toInt() : 0;
    if (first < 0) first += whole;
    if (whole == of.size()) {  // all of the dimension, in which the batch may be
      start = constant(0);
      end = constant(std::numeric_limits<int64_t>::max());
      return;
    }
    start = constant(first / of.size() * own_size(of));
    end = constant(start.constant.toInt() + own_size(of));
  }

  const Graph& graph_;
  const ProgramDimensions& found_;
  const std::set<int>& divided_;
  const GraphPart& whole_;
  const int ranks_, rank_;
  DividedPart made_;
  std::map<int, int> own_;      // by value of the program: that of this rank
  std::map<int, int> entered_;  // likewise, after kEnterRanks
};

}  // namespace

DividedPart divide_part(const Graph& graph, const ProgramDimensions& found, const std::set<int>& divided,
                        const GraphPart& whole, int ranks, int rank) {
  return Divider(graph, found, divided, whole, ranks, rank).divide();
}

}  // namespace shardline
