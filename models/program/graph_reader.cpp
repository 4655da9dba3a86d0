#include "models/program/graph_reader.h"

#include <ATen/ScalarOps.h>

#include <limits>
#include <set>

#include "core/error.h"
#include "core/files/json_data.h"
#include "models/program/operators.h"
#include "models/program/ops/number_functions.h"

namespace shardline {
namespace {

using As = GraphArgument::As;

constexpr int kMajorVersion = 8;
constexpr std::string_view kOperators = "torch.ops.", kHigherOrder = "torch.ops.higher_order.";

// The operator with which transformers exports the experts of a layer; ATen has the same under other names.
constexpr const char* kExpertsProduct = "transformers::grouped_mm_fallback";
std::string argument_of_grouped_product(const std::string& name) {
  return name == "input" ? "self" : name == "weight" ? "mat2" : name;
}

int64_t integer(const JsonValue& value) {
  const auto& json = value.json();
  if (!json.is_number_integer() ||
      (json.is_number_unsigned() && json.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}))
    value.fail("must be an integer of 64 bits");
  return json.get<int64_t>();
}

// JSON cannot represent these as numbers.
double number(const JsonValue& value) {
  const auto& json = value.json();
  if (json == "Infinity") return std::numeric_limits<double>::infinity();
  if (json == "-Infinity") return -std::numeric_limits<double>::infinity();
  if (json == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (!json.is_number()) value.fail("must be a number");
  return json.get<double>();
}

bool flag(const JsonValue& value) {
  return value.require(json_boolean()).get<bool>();
}

// The only member of a union: its kind and its value.
std::pair<std::string, JsonValue> choice(const JsonValue& value) {
  const auto members = value.members();
  if (members.size() != 1) value.fail("must have one member");
  return members.front();
}

at::MemoryFormat memory_format(const JsonValue& value) {
  switch (integer(value)) {
    case 1:
      return at::MemoryFormat::Contiguous;
    case 2:
      return at::MemoryFormat::ChannelsLast;
    case 3:
      return at::MemoryFormat::ChannelsLast3d;
    case 4:
      return at::MemoryFormat::Preserve;
    default:
      value.fail("is not a memory format of version 8");
  }
}

at::Layout layout(const JsonValue& value) {
  constexpr int kStrided = 7;
  if (integer(value) != kStrided) value.fail("must be 7, the strided layout");
  return at::kStrided;
}

std::vector<GraphSize> sizes_of(const JsonValue& list) {
  std::vector<GraphSize> sizes;
  for (const auto& item : list.items()) {
    const auto [kind, value] = choice(item);
    if (kind == "as_int")
      sizes.push_back({.number = integer(value), .expression = ""});
    else
      sizes.push_back({.number = -1, .expression = value.at("expr_str").text()});
  }
  return sizes;
}

// "KEY,PATH,TYPE;KEY,PATH,TYPE": keys may contain commas.
std::vector<GraphModule> module_stack_of(const JsonValue& node) {
  std::vector<GraphModule> modules;
  std::string text = node.at("metadata").text("nn_module_stack", "");
  while (!text.empty()) {
    const size_t end = std::min(text.find(';'), text.size());
    const std::string entry = text.substr(0, end);
    text.erase(0, end + 1);
    const size_t type = entry.rfind(',');
    if (type == std::string::npos || type == 0) continue;
    const size_t path = entry.rfind(',', type - 1);
    if (path == std::string::npos) continue;
    modules.push_back({entry.substr(path + 1, type - path - 1), entry.substr(type + 1)});
  }
  return modules;
}

// The names of the tensors in a tree of tuples and dicts, as paths: {"type": ..., "context": "[\"loss\"]",
// "children_spec"}.
void add_names(const JsonValue& tree, const std::string& path, std::vector<std::string>& names) {
  const auto& json = tree.json();
  if (!json.is_object() || !json.contains("type") || json["type"].is_null()) {
    names.push_back(path.empty() ? "0" : path);
    return;
  }
  const auto children = tree.at("children_spec").items();
  nlohmann::json keys;
  if (json.contains("context") && json["context"].is_string())
    keys = parse_data_value(json["context"].get<std::string>(), tree.where());
  for (size_t i = 0; i < children.size(); ++i) {
    const bool is_named = keys.is_array() && keys.size() == children.size() && keys[i].is_string();
    const std::string name = is_named ? keys[i].get<std::string>() : std::to_string(i);
    add_names(children[i], path.empty() ? name : cat(path, ".", name), names);
  }
}

// The names of the program's own results; empty if the file does not state them.
std::vector<std::string> names_of_outputs(const JsonValue& calls) {
  std::vector<std::string> names;
  for (const auto& call : calls.items()) {
    if (call.text("fqn", "") != "" || !call.has("signature") || !call.at("signature").has("out_spec")) continue;
    const JsonValue spec = call.at("signature").at("out_spec");
    const auto tree = parse_data_value(spec.text(), spec.where());
    if (!tree.is_array() || tree.size() != 2) spec.fail("must be a list of a version and a tree");
    add_names(JsonValue(tree[1], spec.where()), "", names);
    break;
  }
  return names;
}

// ---- what an operator expects

c10::TypePtr without_optional(const c10::TypePtr& type) {
  const auto optional = type->cast<c10::OptionalType>();
  return optional ? optional->getElementType() : type;
}

As wanted(const c10::TypePtr& of_argument) {
  const auto type = without_optional(of_argument);
  switch (type->kind()) {
    case c10::TypeKind::TensorType:
      return As::tensor;
    case c10::TypeKind::FloatType:
    case c10::TypeKind::SymFloatType:
      return As::floating;
    case c10::TypeKind::ListType: {
      const auto item = type->castRaw<c10::ListType>()->getElementType();
      switch (item->kind()) {
        case c10::TypeKind::IntType:
        case c10::TypeKind::SymIntType:
          return As::ints;
        case c10::TypeKind::FloatType:
          return As::floats;
        case c10::TypeKind::TensorType:
          return As::tensors;
        case c10::TypeKind::OptionalType:
          return As::optional_tensors;
        default:
          return As::given;
      }
    }
    default:
      return As::given;
  }
}

// A constant in the type that the operator expects.
c10::IValue converted(const c10::IValue& value, As as) {
  if (as == As::tensor && value.isScalar()) return at::native::wrapped_scalar_tensor(value.toScalar());
  if (as == As::floating && value.isInt()) return double(value.toInt());
  return value;
}

// A list of constants in the type that the operator expects; nothing if the items are of a different type.
std::optional<c10::IValue> constant_list(const std::vector<GraphArgument>& items, As as) {
  const auto all = [&](auto has_type) {
    return std::ranges::all_of(items, [&](const GraphArgument& item) { return has_type(item.constant); });
  };
  if (as == As::ints && all([](const auto& item) { return item.isInt(); })) {
    c10::List<int64_t> list;
    for (const auto& item : items) list.push_back(item.constant.toInt());
    return list;
  }
  if (as == As::floats && all([](const auto& item) { return item.isInt() || item.isDouble(); })) {
    c10::List<double> list;
    for (const auto& item : items) list.push_back(item.constant.toScalar().toDouble());
    return list;
  }
  if (as == As::given && all([](const auto& item) { return item.isBool(); })) {
    c10::List<bool> list;
    for (const auto& item : items) list.push_back(item.constant.toBool());
    return list;
  }
  return {};
}

// ---- the graph

class GraphReader {
 public:
  explicit GraphReader(const JsonValue& json) : json_(json) {}

  Graph read() {
    const JsonValue version = json_.at("schema_version").at("major");
    if (integer(version) != kMajorVersion) version.fail(cat("must be ", kMajorVersion), kExportAgain);
    const JsonValue module = json_.at("graph_module"), graph = module.at("graph");
    Scope scope;
    describe(graph, scope);
    read_inputs(module.at("signature").at("input_specs"), scope);
    read_nodes(graph, scope, true);
    const auto names =
        module.has("module_call_graph") ? names_of_outputs(module.at("module_call_graph")) : std::vector<std::string>();
    std::vector<JsonValue> outputs;
    for (const auto& item : module.at("signature").at("output_specs").items()) {
      const auto [kind, spec] = choice(item);
      if (kind == "buffer_mutation")
        read_new_value(spec, scope);
      else
        outputs.push_back(item);
    }
    for (size_t i = 0; i < outputs.size(); ++i)
      read_output(outputs[i], names.size() == outputs.size() ? names[i] : std::to_string(i), scope);
    add_changes();
    return std::move(graph_);
  }

 private:
  // The names in one graph; a nested graph has its own.
  struct Scope {
    std::map<std::string, GraphValue> described;
    std::map<std::string, int> values;  // existing values
    bool has_grad = true;
    std::optional<GraphNode::Autocast> autocast = {};
  };

  static void describe(const JsonValue& graph, Scope& scope) {
    for (const auto& [name, meta] : graph.at("tensor_values").members()) {
      const JsonValue dtype = meta.at("dtype");
      scope.described[name] = {name, dtype_of_number(integer(dtype), dtype.where()), sizes_of(meta.at("sizes"))};
    }
  }

  int new_value(const std::string& name, Scope& scope, const JsonValue& where) {
    const auto described = scope.described.find(name);
    const int value = std::ssize(graph_.values);
    if (!scope.values.emplace(name, value).second) where.fail(cat("makes ", name, ", which already exists"));
    graph_.values.push_back(described == scope.described.end() ? GraphValue{.name = name} : described->second);
    return value;
  }

  static int value_of(const JsonValue& name, const Scope& scope) {
    const auto found = scope.values.find(name.text());
    if (found == scope.values.end()) name.fail("must be a value that already exists");
    return found->second;
  }

  void read_inputs(const JsonValue& specs, Scope& scope) {
    using Kind = GraphInput::Kind;
    for (const auto& item : specs.items()) {
      const auto [kind, spec] = choice(item);
      if (kind == "constant_input") continue;  // its value is stored in the nodes
      const auto add = [&](Kind of, const std::string& name, const JsonValue& argument) {
        const JsonValue in_graph = argument.at("name");
        graph_.inputs.push_back({of, name, new_value(in_graph.text(), scope, in_graph)});
      };
      if (kind == "parameter") {
        add(Kind::parameter, spec.at("parameter_name").text(), spec.at("arg"));
      } else if (kind == "buffer") {
        add(Kind::buffer, spec.at("buffer_name").text(), spec.at("arg"));
        graph_.inputs.back().is_persistent = spec.flag("persistent", true);
      } else if (kind == "tensor_constant") {
        add(Kind::constant, spec.at("tensor_constant_name").text(), spec.at("arg"));
      } else if (kind == "user_input") {
        const auto [type, argument] = choice(spec.at("arg"));
        if (type == "as_tensor") add(Kind::user, argument.at("name").text(), argument);
      } else {
        item.fail(cat("inputs of the kind ", kind, " are not supported"));
      }
    }
  }

  // Programs after run_decompositions change nothing in place: they return the new values of buffers.
  void read_new_value(const JsonValue& spec, const Scope& scope) {
    const JsonValue name = spec.at("buffer_name"), argument = spec.at("arg").at("name");
    const auto buffer = std::ranges::find_if(graph_.inputs, [&](const GraphInput& input) {
      return input.kind == GraphInput::Kind::buffer && input.name == name.text();
    });
    if (buffer == graph_.inputs.end()) name.fail("must be a buffer of the program");
    const int value = value_of(argument, scope);
    const GraphValue &before = graph_.values[buffer->value], &after = graph_.values[value];
    if (after.dtype != before.dtype || after.sizes != before.sizes)
      argument.fail(cat("must have the sizes and the dtype of the buffer ", name.text()));
    if (!changes_.emplace(buffer->value, value).second) name.fail("is a buffer that already has a new value");
  }

  // Copies the new values to their buffers at the end of the graph, as the program did before it was decomposed. All of
  // them come first: one may be the old value of another buffer.
  void add_changes() {
    std::map<int, int> copies;
    const auto add_call = [&](const char* call, int buffer, std::vector<GraphArgument> arguments) {
      GraphValue made = graph_.values[buffer];
      made.name = cat(made.name, " after ", call);
      graph_.values.push_back(std::move(made));
      const int value = std::ssize(graph_.values) - 1;
      graph_.nodes.push_back(
          {.name = call, .arguments = std::move(arguments), .results = {{.value = value}}, .has_grad = false});
      return value;
    };
    for (const auto& [buffer, value] : changes_)
      copies[buffer] = add_call("aten::clone", buffer, {{.value = value}, {}});
    for (const auto& [buffer, copy] : copies)
      add_call("aten::copy_", buffer, {{.value = buffer}, {.value = copy}, {.constant = false}});
  }

  void read_output(const JsonValue& item, const std::string& name, const Scope& scope) {
    const auto [kind, spec] = choice(item);
    if (kind != "user_output" && kind != "loss_output")
      item.fail(cat("outputs of the kind ", kind, " are not supported"));
    const auto [type, argument] = choice(spec.at("arg"));
    if (type == "as_tensor") graph_.outputs.push_back({name, value_of(argument.at("name"), scope)});
  }

  void read_nodes(const JsonValue& graph, Scope& scope, bool has_grad) {
    scope.has_grad = has_grad;
    for (const auto& item : graph.at("nodes").items()) {
      const std::string target = item.at("target").text();
      if (target.starts_with(kHigherOrder))
        inline_graph(target.substr(kHigherOrder.size()), item, scope);
      else if (target.starts_with(kOperators))
        read_call(target.substr(kOperators.size()), item, scope);
      else
        read_function(target, item, scope);
    }
  }

  // "aten.linear.default"
  void read_call(const std::string& target, const JsonValue& item, Scope& scope) {
    const size_t space = target.find('.'), overload = target.rfind('.');
    if (space == std::string::npos || space == overload) item.at("target").fail("must be NAMESPACE.NAME.OVERLOAD");
    GraphNode node{.name = cat(target.substr(0, space), "::", target.substr(space + 1, overload - space - 1)),
                   .overload = target.substr(overload + 1),
                   .modules = module_stack_of(item),
                   .has_grad = scope.has_grad,
                   .autocast = scope.autocast};
    if (node.overload == "default") node.overload.clear();
    static const std::set<std::string> views = {"aten::squeeze_", "aten::t_", "aten::transpose_", "aten::unsqueeze_"};
    const bool renames = views.contains(node.name);  // a call that changes the sizes of `self`: later calls see a view
    if (renames) node.name.pop_back();
    const bool is_of_experts = node.text() == kExpertsProduct;
    if (is_of_experts) node.name = kGroupedProduct;
    if (node.name == "aten::detach_") node.name = "aten::detach";  // only on constants, which have no gradient anyway
    const std::string place = place_of(node), of_module = place.empty() ? "" : cat(" (", place.substr(1), ")");
    if (const auto why = refusal_of(node.name, node.overload); !why.empty())
      item.at("target").fail(cat("cannot run here", of_module, ", because ", why), "export the model without it");
    const auto op = find_operator(node.name, node.overload);
    std::map<std::string, JsonValue> given;
    for (const auto& input : item.at("inputs").items()) {
      const std::string name = input.at("name").text();
      if (!given.emplace(is_of_experts ? argument_of_grouped_product(name) : name, input.at("arg")).second)
        input.fail("is an argument that was already given");
    }
    for (const auto& argument : op->schema().arguments()) {
      const auto found = given.find(argument.name());
      if (found != given.end()) {
        node.arguments.push_back(typed(found->second, argument, scope));
        given.erase(found);
      } else if (argument.default_value()) {
        node.arguments.push_back({.constant = *argument.default_value()});
      } else {
        item.at("inputs").fail(cat("the operator needs an argument ", argument.name()));
      }
    }
    if (!given.empty()) given.begin()->second.fail(cat("the operator has no argument ", given.begin()->first));
    node.results = results_of(item, scope, op->schema().returns().size());
    if (const auto why = draws_of(node); !why.empty())
      item.at("target").fail(cat("cannot run here", of_module, ", because ", why), "export the model without it");
    if (node.name == kBatchNorm && node.arguments[place_of_argument(node, "training")].constant != c10::IValue(false))
      item.at("target").fail(
          cat("is a norm over the samples of a batch", of_module, ", so a sample's result depends on the others"),
          "export a model with another norm, or with this one in evaluation mode");
    if (renames && !node.results.empty())
      for (auto& [name, value] : scope.values)
        if (value == node.arguments[0].value) value = node.results[0].value;
    graph_.nodes.push_back(std::move(node));
  }

  void read_function(const std::string& name, const JsonValue& item, Scope& scope) {
    if (!is_number_function(name)) item.at("target").fail("is not a function of numbers that can run here");
    GraphNode node{.name = name,
                   .is_operator = false,
                   .modules = module_stack_of(item),
                   .has_grad = scope.has_grad,
                   .autocast = scope.autocast};
    for (const auto& input : item.at("inputs").items()) node.arguments.push_back(argument_of(input.at("arg"), scope));
    node.results = results_of(item, scope, 1);
    graph_.nodes.push_back(std::move(node));
  }

  // wrap_with_set_grad_enabled(enabled, graph, values of its inputs...)
  // wrap_with_autocast(device type, dtype, enabled, cache, graph, values of its inputs...)
  void inline_graph(const std::string& target, const JsonValue& item, Scope& scope) {
    const auto inputs = item.at("inputs").items();
    size_t place = 0;
    while (place < inputs.size() && !inputs[place].at("arg").has("as_graph")) ++place;
    const bool sets_grad = target == "wrap_with_set_grad_enabled" && place == 1;
    const bool autocasts = target == "wrap_with_autocast" && place >= 3;
    if ((!sets_grad && !autocasts) || place == inputs.size())
      item.at("target").fail("is a higher-order operator that cannot run here", "export the model without it");
    const JsonValue enabled = choice(inputs[sets_grad ? 0 : 2].at("arg")).second;

    const JsonValue graph = inputs[place].at("arg").at("as_graph").at("graph");
    Scope inner;
    describe(graph, inner);
    const auto names = graph.at("inputs").items();
    if (names.size() != inputs.size() - place - 1)
      item.fail("must pass its graph as many values as the graph has inputs");
    for (size_t i = 0; i < names.size(); ++i) {
      const auto [name, value] = named(names[i], inputs[place + 1 + i].at("arg"), scope);
      if (!inner.values.emplace(name, value).second) names[i].fail("is an input that already exists");
    }
    inner.autocast = scope.autocast;
    if (autocasts) inner.autocast = GraphNode::Autocast{flag(enabled) ? half_type(inputs[1].at("arg")) : std::nullopt};
    read_nodes(graph, inner, scope.has_grad && (!sets_grad || flag(enabled)));
    std::vector<JsonValue> outer;
    for (const auto& output : item.at("outputs").items()) {
      const auto [kind, value] = choice(output);
      if (kind == "as_tensors")
        for (const auto& one : value.items()) outer.push_back(one.at("name"));
      else
        outer.push_back(name_in(output));
    }
    const auto made = graph.at("outputs").items();
    if (made.size() != outer.size()) item.fail("must have as many results as its graph has outputs");
    for (size_t i = 0; i < made.size(); ++i)
      if (!scope.values.emplace(outer[i].text(), value_of(name_in(made[i]), inner)).second)
        outer[i].fail("already exists");
  }

  // The type of autocast; on CPUs, bfloat16 is the default.
  static std::optional<at::ScalarType> half_type(const JsonValue& json) {
    const auto [kind, value] = choice(json);
    if (kind == "as_none") return at::kBFloat16;
    const auto type = dtype_of_number(integer(value), value.where());
    if (kind != "as_scalar_type" || (type != at::kHalf && type != at::kBFloat16))
      value.fail("must be bfloat16 or float16, the types of autocast");
    return type;
  }

  // The name of a tensor or of a computed number.
  static JsonValue name_in(const JsonValue& argument) {
    const auto [kind, value] = choice(argument);
    return value.at(kind == "as_tensor" ? "name" : "as_name");
  }

  std::pair<std::string, int> named(const JsonValue& inner, const JsonValue& outer, const Scope& scope) const {
    return {name_in(inner).text(), value_of(name_in(outer), scope)};
  }

  std::vector<GraphNode::Result> results_of(const JsonValue& item, Scope& scope, size_t most) {
    std::vector<GraphNode::Result> results;
    const auto outputs = item.at("outputs").items();
    if (outputs.size() > most) item.at("outputs").fail(cat("the call returns ", most, " results"));
    for (size_t place = 0; place < outputs.size(); ++place) {
      const auto [kind, value] = choice(outputs[place]);
      if (kind == "as_none") continue;
      if (kind == "as_tensors") {
        const auto names = value.items();
        for (size_t i = 0; i < names.size(); ++i)
          results.push_back({int(place), int(i), new_value(names[i].at("name").text(), scope, names[i])});
      } else if (kind == "as_tensor" || kind == "as_sym_int" || kind == "as_sym_float" || kind == "as_sym_bool") {
        const JsonValue name = name_in(outputs[place]);
        results.push_back({int(place), -1, new_value(name.text(), scope, name)});
      } else {
        outputs[place].fail("is a result of an unsupported kind");
      }
    }
    return results;
  }

  GraphArgument typed(const JsonValue& json, const c10::Argument& wants, const Scope& scope) const {
    GraphArgument argument = argument_of(json, scope);
    argument.as = wanted(wants.real_type());
    if (argument.value >= 0) return argument;
    if (!argument.is_list) {
      argument.constant = converted(argument.constant, argument.as);
      const auto type = without_optional(wants.type());
      const bool is_number = type->kind() == c10::TypeKind::NumberType;
      const bool fits = argument.constant.isNone() ? type != wants.type()
                        : is_number                ? argument.constant.isScalar()
                                                   : argument.constant.type()->isSubtypeOf(*type);
      if (!fits) json.fail(cat("does not fit the argument ", wants.name(), " of type ", wants.type()->str()));
      return argument;
    }
    const bool has_tensors = argument.as == As::tensors || argument.as == As::optional_tensors;
    const bool has_values =
        std::ranges::any_of(argument.items, [](const GraphArgument& item) { return item.value >= 0; });
    if (has_tensors || (has_values && argument.as == As::ints)) return argument;
    const auto list = constant_list(argument.items, argument.as);
    if (!list) json.fail(cat("does not fit the argument ", wants.name(), " of type ", wants.type()->str()));
    return {.constant = *list, .as = argument.as};
  }

  // Returns the argument as it is in the file.
  GraphArgument argument_of(const JsonValue& json, const Scope& scope) const {
    const auto [kind, value] = choice(json);
    const auto constant = [](c10::IValue made) { return GraphArgument{.constant = std::move(made)}; };
    const auto list = [&items = value](const auto& item_of) {
      GraphArgument made{.is_list = true};
      for (const auto& item : items.items()) made.items.push_back(item_of(item));
      return made;
    };
    const auto tensor = [&](const JsonValue& item) { return GraphArgument{.value = value_of(item.at("name"), scope)}; };
    if (kind == "as_none") return constant({});
    if (kind == "as_tensor") return tensor(value);
    if (kind == "as_tensors") return list(tensor);
    if (kind == "as_int") return constant(integer(value));
    if (kind == "as_float") return constant(number(value));
    if (kind == "as_bool") return constant(flag(value));
    if (kind == "as_string") return constant(value.text());
    if (kind == "as_ints") return list([&](const JsonValue& item) { return constant(integer(item)); });
    if (kind == "as_floats") return list([&](const JsonValue& item) { return constant(number(item)); });
    if (kind == "as_bools") return list([&](const JsonValue& item) { return constant(flag(item)); });
    if (kind == "as_scalar_type") return constant(dtype_of_number(integer(value), value.where()));
    if (kind == "as_memory_format") return constant(memory_format(value));
    if (kind == "as_layout") return constant(layout(value));
    if (kind == "as_device") return constant(at::Device(at::kCPU));  // the interpreter chooses the device
    if (kind == "as_sym_int" || kind == "as_sym_float" || kind == "as_sym_bool") return computed(value, scope);
    if (kind == "as_sym_ints" || kind == "as_sym_floats" || kind == "as_sym_bools")
      return list([&](const JsonValue& item) { return computed(item, scope); });
    if (kind == "as_optional_tensor") return optional_tensor(value, scope);
    if (kind == "as_optional_tensors") return list([&](const JsonValue& item) { return optional_tensor(item, scope); });
    json.fail(cat("arguments of the kind ", kind, " are not supported"));
  }

  static GraphArgument optional_tensor(const JsonValue& json, const Scope& scope) {
    const auto [kind, value] = choice(json);
    return kind == "as_none" ? GraphArgument{} : GraphArgument{.value = value_of(value.at("name"), scope)};
  }

  // A number that may be computed: {"as_name": name}, or a constant.
  static GraphArgument computed(const JsonValue& json, const Scope& scope) {
    const auto [kind, value] = choice(json);
    if (kind == "as_name") return {.value = value_of(value, scope)};
    if (kind == "as_int") return {.constant = integer(value)};
    if (kind == "as_bool") return {.constant = flag(value)};
    return {.constant = number(value)};
  }

  const JsonValue& json_;
  Graph graph_;
  std::map<int, int> changes_;  // new values by the values of their buffers
};

}  // namespace

at::ScalarType dtype_of_number(int64_t number, const std::string& where) {
  constexpr int64_t kBool = 12, kBFloat16 = 13;
  if (number >= 1 && number <= kBool) return at::ScalarType(number - 1);
  if (number == kBFloat16) return at::kBFloat16;
  throw DataError(cat(where, ": is not a dtype that can be used here; got ", number));
}

Graph read_graph(const nlohmann::json& json, const std::string& file) {
  const JsonValue value(json, file);
  return GraphReader(value).read();
}

}  // namespace shardline
