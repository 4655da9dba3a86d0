#include "models/program/split/divided_graph.h"

#include <ATen/core/List.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "core/error.h"
#include "models/program/operators.h"
#include "models/program/split/dimension_rules.h"

namespace shardline {

namespace {

DividedDimension::Section section_of(const Atoms& atoms, const Dimension& section, const std::set<int>& divided) {
  DividedDimension::Section made;
  for (const int atom : atoms.resolved(section)) {
    if (divided.contains(atom)) {
      SL_ASSERT(!made.is_divided, "a section with two divided dimensions");
      made.is_divided = true;
      made.count = atoms.size(atom);
    } else {
      (made.is_divided ? made.after : made.before) *= atoms.size(atom);
    }
  }
  return made;
}

}  // namespace

std::optional<DividedDimension> divided_dimension(const Atoms& atoms, const Dimensions& dimensions,
                                                  const std::set<int>& divided) {
  std::optional<DividedDimension> found;
  for (int i = 0; i < std::ssize(dimensions); ++i) {
    int64_t before = 1;
    for (const int atom : atoms.resolved(dimensions[i])) {
      const Dimension leaves = atoms.leaves({atom});
      if (std::ranges::any_of(leaves, [&](int leaf) { return divided.contains(leaf); })) {
        SL_ASSERT(!found, "a tensor with two divided dimensions");
        found = DividedDimension{.dimension = i, .before = before, .count = atoms.size(atom), .sections = {}};
        for (const auto& section : atoms.sections(atom)) found->sections.push_back(section_of(atoms, section, divided));
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
  Divider(const Graph& graph, const GraphPart& whole, const Division& division)
      : graph_(graph),
        found_(division.found),
        divided_(division.atoms),
        by_row_(division.rows),
        whole_(whole),
        ranks_(division.ranks),
        rank_(division.rank) {}

  DividedPart divide() {
    for (const int value : whole_.inputs) {
      made_.part.inputs.push_back(new_value(value));
      const bool is_rows = by_row_ && by_row_->is_border(value) && by_row_->leading(value) == 2;
      if (is_rows) rows_.insert(value);
      made_.inputs_are_rows.push_back(is_rows);
    }
    int site = 0;
    for (const int index : whole_.nodes) {
      const GraphNode& node = graph_.nodes[index];
      if (node.name == kDropout || node.name == kAttention) note_dropped(index, site++);
      divide(index);
    }
    for (const int value : whole_.outputs) {
      const bool is_rows = by_row_ && by_row_->is_border(value) && by_row_->leading(value) == 2;
      const GraphNode last = own_call({}, "");
      made_.part.outputs.push_back(is_rows                 ? as_rows(last, value, 2, 3)
                                   : rows_.contains(value) ? gathered(last, value)
                                                           : own_.at(value));
      made_.outputs_are_rows.push_back(is_rows);
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
  int64_t own_size(const DividedDimension& of) const { return of.own_size(ranks_, rank_); }

  // Attention probabilities have the heads of the queries.
  void note_dropped(int index, int site) {
    if (runs_by_row(index)) made_.dropped_rows.insert(site);
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

  static GraphNode own_call(const GraphNode& from, const char* name) {
    return {.name = name,
            .overload = "",
            .is_operator = false,
            .arguments = {},
            .results = {},
            .modules = from.modules,
            .has_grad = from.has_grad,
            .autocast = from.autocast};
  }

  // Adds a call whose only result is like `whole`.
  int call(const GraphNode& from, const char* name, const char* overload, std::vector<GraphArgument> arguments,
           int whole, const char* of, bool is_operator = true) {
    GraphNode node = own_call(from, name);
    node.overload = overload;
    node.is_operator = is_operator;
    node.arguments = std::move(arguments);
    return made_by(std::move(node), whole, of);
  }

  int made_by(GraphNode node, int whole, const char* of) {
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

  // ---- rows

  // Whether a call runs on the rank's rows.
  bool runs_by_row(int index) const {
    if (!by_row_ || !by_row_->is_by_row(index) || is_divided(index)) return false;
    bool has_rows = false;
    visit_readings(graph_, index, [&](const Reading&, int value) { has_rows |= rows_.contains(value); });
    return has_rows;
  }

  // All rows of a value that is divided by rows, for divided calls and for calls that every rank makes.
  int entered_from_rows(const GraphNode& node, int whole) {
    const auto [known, is_new] = entered_.try_emplace(whole, -1);
    if (is_new)
      known->second = row_call(node, kEnterFromRows, own_.at(whole), by_row_->leading(whole), whole, " entered");
    return known->second;
  }
  int gathered(const GraphNode& node, int whole) {
    const auto [known, is_new] = gathered_.try_emplace(whole, -1);
    if (is_new)
      known->second = row_call(node, kGatherRows, own_.at(whole), by_row_->leading(whole), whole, " gathered");
    return known->second;
  }
  // The rank's rows of a value that is whole on every rank or already divided by rows.
  int as_rows(const GraphNode& node, int whole, int leading, int64_t dimensions) {
    if (rows_.contains(whole)) return own_.at(whole);
    GraphNode slice = own_call(node, kSliceRows);
    slice.arguments = {given(own_.at(whole)), constant(int64_t{leading}), constant(dimensions)};
    return made_by(std::move(slice), whole, " rows");
  }

  int row_call(const GraphNode& node, const char* name, int own, int leading, int whole, const char* of) {
    GraphNode made = own_call(node, name);
    made.arguments = {given(own), constant(int64_t{leading})};
    return made_by(std::move(made), whole, of);
  }

  // The argument of a call on rows.
  int row_argument(const GraphNode& node, const Reading& reading, int value, int result) {
    if (rows_.contains(value)) return own_.at(value);
    if (by_row_->has_tokens(graph_, reading))
      return as_rows(node, value, by_row_->leading(result), std::ssize(found_.of_value.at(result)));
    const auto dtype = graph_.values[value].dtype;
    const bool has_gradient = found_.of_value.contains(value) && dtype && c10::isFloatingType(*dtype);
    return has_gradient ? entered(node, value) : own_.at(value);
  }

  void run_by_row(int index) {
    const GraphNode& whole = graph_.nodes[index];
    const int result = whole.results[0].value;
    GraphNode node = whole;
    std::map<Reading, int> replaced;
    visit_readings(graph_, index, [&](const Reading& reading, int value) {
      if (found_.read_at(graph_, reading)) replaced[reading] = row_argument(whole, reading, value, result);
    });
    for (int i = 0; i < std::ssize(node.arguments); ++i) place(node.arguments[i], {index, i}, replaced);
    if (node.name == "aten::view" || node.name == "aten::_unsafe_view") set_row_sizes(node, "size", result);
    if (node.name == "aten::reshape") set_row_sizes(node, "shape", result);
    node.results[0].value = new_value(result);
    rows_.insert(result);
    add(std::move(node));
  }

  void set_row_sizes(GraphNode& node, const char* name, int result) const {
    GraphArgument& sizes = node.arguments[place_of_argument(node, name)];
    const int leading = by_row_->leading(result);
    std::vector<GraphArgument> items;
    if (leading == 2) items.push_back(constant(int64_t{1}));
    items.push_back(constant(int64_t{-1}));
    for (int64_t i = leading; i < std::ssize(found_.of_value.at(result)); ++i) {
      GraphArgument item = sizes.is_list ? sizes.items[i] : constant(sizes.constant.toIntVector()[i]);
      if (item.value < 0 && item.constant.toInt() == -1) item = constant(graph_.values[result].sizes[i].number);
      items.push_back(std::move(item));
    }
    sizes = {.constant = {}, .items = std::move(items), .is_list = true, .as = GraphArgument::As::ints};
  }

  // The rank's part of a value that is whole on every rank, as `from`.
  int own_part(const GraphNode& node, int whole, int from, const DividedDimension& of) {
    const Range range = mine(of);
    const int64_t d = of.dimension;
    const int apart =
        call(node, "aten::unflatten", "int",
             {given(from), constant(d), constant(c10::List<int64_t>({-1, of.count, of.after}))}, whole, " apart");
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
    if (runs_by_row(index)) return run_by_row(index);
    const bool is_split = is_divided(index);
    const auto summed = found_.summed.find(index);
    const auto sum = is_split && summed != found_.summed.end() ? divided({summed->second}) : std::nullopt;
    const int bias = sum ? place_of_bias(whole) : -1;
    visit_readings(graph_, index, [&](const Reading& reading, int value) {
      if (reading.argument == bias) return;
      if (rows_.contains(value)) {
        replaced[reading] = is_split ? entered_from_rows(whole, value) : gathered(whole, value);
      } else if (is_split) {
        const auto of = of_reading(reading);
        const auto dtype = graph_.values[value].dtype;
        const bool is_trained = found_.of_value.contains(value);
        if (is_trained && !of && dtype && c10::isFloatingType(*dtype)) replaced[reading] = entered(whole, value);
        if (!is_trained && of) replaced[reading] = own_part(whole, value, own_.at(value), *of);
      }
    });
    if (const auto sliced = found_.sliced.find(index); sliced != found_.sliced.end())
      if (const auto of = divided(sliced->second)) {
        const int value = whole.arguments[0].value;
        const auto entered = replaced.find({index, 0});
        replaced[{index, 0}] =
            own_part(whole, value, entered == replaced.end() ? own_.at(value) : entered->second, *of);
      }
    for (int i = 0; i < std::ssize(node.arguments); ++i) place(node.arguments[i], {index, i}, replaced);
    if (sum) return add_summed(index, std::move(node), *sum, bias);
    if (const auto gathered = found_.gathered.find(index); gathered != found_.gathered.end())
      if (const auto of = divided(gathered->second)) return add_gathered(whole, std::move(node), *of);
    if (const auto self = of_reading({index, 0}); self && takes_sections(index, *self))
      return add_sections(index, std::move(node), *self);
    if (is_split) set_sizes(index, node);
    for (auto& result : node.results) result.value = new_value(result.value);
    add(std::move(node));
  }

  static int place_of_bias(const GraphNode& node) {
    if (node.name == "aten::linear" || node.name.starts_with("aten::conv")) return place_of_argument(node, "bias");
    return node.name == "aten::addmm" ? place_of_argument(node, "self") : -1;
  }

  // node: the original node with the rank's arguments.
  void add_summed(int index, GraphNode node, const DividedDimension& sum, int bias) {
    const GraphNode& whole = graph_.nodes[index];
    const int result = whole.results[0].value;
    if (node.name == "aten::embedding") return add_lookup(whole, std::move(node), sum);
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
    int added = bias >= 0 ? bias_of(index, bias) : -1;
    if (added >= 0 && whole.name.starts_with("aten::conv"))
      added = call(whole, "aten::view", "", {given(added), constant(c10::List<int64_t>(shape_of_channels(result)))},
                   whole.arguments[bias].value, " of channels");
    // In half precision, the type of the product differs from that of the bias.
    if (added >= 0)
      added =
          call(whole, "aten::type_as", "", {given(added), given(partial)}, whole.arguments[bias].value, " in its type");
    const int total = add_over_ranks(whole, partial, result);
    own_[result] =
        added < 0 ? total
                  : call(whole, "aten::add", "Tensor", {given(total), given(added), constant(1)}, result, " with bias");
  }

  // [channels, 1, ...]
  std::vector<int64_t> shape_of_channels(int result) const {
    std::vector<int64_t> shape(found_.of_value.at(result).size() - 1, 1);
    shape[0] = -1;
    return shape;
  }

  // What is added to a sum over ranks; -1: nothing.
  int bias_of(int index, int bias) {
    const GraphNode& whole = graph_.nodes[index];
    const int value = whole.arguments[bias].value, result = whole.results[0].value;
    if (value < 0) return -1;
    if (sums_become_rows(result)) return row_argument(whole, {index, bias}, value, result);
    return rows_.contains(value) ? gathered(whole, value) : own_.at(value);
  }

  bool sums_become_rows(int result) const { return by_row_ && by_row_->leading(result) > 0; }

  int add_over_ranks(const GraphNode& whole, int partial, int result) {
    if (!sums_become_rows(result)) return call(whole, kAddOverRanks, "", {given(partial)}, result, " sum", false);
    rows_.insert(result);
    return row_call(whole, kAddToRows, partial, by_row_->leading(result), result, " sum");
  }

  // Adds a product whose columns are divided and then gathered on every rank.
  void add_gathered(const GraphNode& whole, GraphNode node, const DividedDimension& of) {
    const int result = whole.results[0].value, part = new_value_like(result, " part");
    node.results = {{.value = part}};
    set_groups(node, of);
    add(std::move(node));
    GraphNode gather = own_call(whole, kGatherColumns);
    gather.arguments = {given(part), constant(int64_t{of.dimension}), constant(of.before), constant(of.count),
                        constant(of.after)};
    own_[result] = made_by(std::move(gather), result, " gathered");
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
    own_[result] = add_over_ranks(whole, own, result);
  }

  // ---- sizes in arguments

  // Sets one size in a list. A size that the program computes is a multiple of the number that the ranks divide.
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
    const int units = call(whole, "_operator.floordiv", "", {item, constant(of.middle())}, result, " units", false);
    item = given(call(whole, "_operator.mul", "", {given(units), constant(of.own_middle(ranks_, rank_))}, result,
                      " own units", false));
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
    if (node.name == "aten::view" || node.name == "aten::_unsafe_view" || node.name == "aten::expand" ||
        node.name == "aten::broadcast_to")
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
    set_groups(node, *of);
  }

  // of: the channels that a convolution makes, which are divided by groups or inside each group.
  void set_groups(GraphNode& node, const DividedDimension& of) const {
    if (!node.name.starts_with("aten::conv")) return;
    c10::IValue& groups = node.arguments[place_of_argument(node, "groups")].constant;
    if (of.dimension == 1 && of.before * of.middle() <= groups.toInt())
      groups = groups.toInt() / of.middle() * of.own_middle(ranks_, rank_);
  }

  // ---- sections

  // Whether a call selects parts of the dimension whose sections are divided.
  bool takes_sections(int index, const DividedDimension& self) const {
    if (self.sections.empty() || self.before > 1) return false;
    const GraphNode& node = graph_.nodes[index];
    if (node.name == "aten::index" && !found_.picked.contains(index)) return false;
    return cuts_sections(node) && dimension_of(index) == self.dimension;
  }

  // The dimension along which a call cuts or selects.
  int64_t dimension_of(int index) const {
    const GraphNode& node = graph_.nodes[index];
    if (node.name == "aten::index") {
      const auto& items = node.arguments[place_of_argument(node, "indices")].items;
      return std::ranges::find_if(items, [](const GraphArgument& item) { return item.value >= 0; }) - items.begin();
    }
    const int64_t dimension = node.arguments[place_of_argument(node, "dim")].constant.toInt();
    return dimension < 0 ? dimension + std::ssize(*found_.read_at(graph_, {index, 0})) : dimension;
  }

  // node: the original node with the rank's arguments. A section that is not divided leaves the region of the ranks.
  void add_sections(int index, GraphNode node, const DividedDimension& self) {
    const GraphNode& whole = graph_.nodes[index];
    const int64_t size = self.middle() * self.after;
    const auto own = [&](int64_t place) { return self.own_place(place / self.after, ranks_, rank_) * self.after; };
    const GraphArgument tensor = node.arguments[0];
    const auto set_part = [&](int64_t begin, int64_t end) {
      node.name = "aten::slice";
      node.overload = "Tensor";
      node.arguments = {tensor, constant(dimension_of(index)), constant(own(begin)), constant(own(end)), constant(1)};
    };
    if (whole.name == "aten::index") {
      const int64_t place = found_.picked.at(index) * self.after;
      set_part(place, place + self.after);
    } else if (whole.name == "aten::slice") {
      const auto place = [&](const char* name, int64_t otherwise) {
        const auto& given = whole.arguments[place_of_argument(whole, name)].constant;
        const int64_t at = given.isInt() ? given.toInt() : otherwise;
        return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
      };
      set_part(place("start", 0), place("end", size));
    } else {
      std::vector<int64_t> lengths;
      int64_t begin = 0;
      for (const int64_t length : lengths_of_split(whole, size)) {
        lengths.push_back(own(begin + length) - own(begin));
        begin += length;
      }
      node.name = "aten::split_with_sizes";
      node.overload = "";
      node.arguments = {tensor, constant(c10::List<int64_t>(lengths)), constant(dimension_of(index))};
    }
    std::vector<std::pair<int, int>> leaving;
    for (auto& result : node.results) {
      const int value = result.value;
      result.value = new_value(value);
      if (!of_value(value)) leaving.emplace_back(value, result.value);
    }
    add(std::move(node));
    for (const auto& [value, part] : leaving) {
      GraphNode leave = own_call(whole, kLeaveRanks);
      leave.arguments = {given(part)};
      own_[value] = made_by(std::move(leave), value, " left");
    }
  }

  void set_slice(int index, GraphNode& node, const DividedDimension& of) const {
    const GraphArgument& step = node.arguments[place_of_argument(node, "step")];
    const bool is_every_nth = step.value < 0 && step.constant.isInt() && step.constant.toInt() > 1;
    GraphArgument& start = node.arguments[place_of_argument(node, "start")];
    GraphArgument& end = node.arguments[place_of_argument(node, "end")];
    const int64_t whole = of_reading({index, 0})->size();
    int64_t first = start.value < 0 && start.constant.isInt() ? start.constant.toInt() : 0;
    if (first < 0) first += whole;
    if (is_every_nth) {  // from a start that is the same in each rank's part
      end = constant(std::numeric_limits<int64_t>::max());
      return;
    }
    if (whole == of.size()) {  // all of the dimension, which may include the batch
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
  const ProgramRows* const by_row_;
  const GraphPart& whole_;
  const int ranks_, rank_;
  DividedPart made_;
  std::map<int, int> own_;       // by value of the program: the value on this rank
  std::map<int, int> entered_;   // likewise, after kEnterRanks or kEnterFromRows
  std::map<int, int> gathered_;  // likewise, after kGatherRows
  std::set<int> rows_;           // values for which own_ has only the rank's rows
};

}  // namespace

DividedPart divide_part(const Graph& graph, const GraphPart& whole, const Division& division) {
  return Divider(graph, whole, division).divide();
}

}  // namespace shardline
