#include "models/program/gelu_calls.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <set>
#include <vector>

#include "models/program/graph_flow.h"
#include "models/program/operators.h"

namespace shardline {
namespace {

constexpr int kDegree = 4;
constexpr int kLongest = 8;  // maximum number of calls from the function to the result
constexpr double kTolerance = 1e-9;

// Coefficients of the powers of x.
using Polynomial = std::array<double, kDegree + 1>;

// `alone` + `with` * t, where t is the result of tanh or erf.
struct Expression {
  Polynomial alone = {}, with = {};
};

bool is_zero(const Polynomial& a) {
  return std::ranges::all_of(a, [](double c) { return c == 0; });
}

bool are_near(const Polynomial& a, const Polynomial& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (std::abs(a[i] - b[i]) > kTolerance * std::abs(b[i])) return false;
  return true;
}

void add(Polynomial& to, const Polynomial& a, double factor) {
  for (size_t i = 0; i < a.size(); ++i) to[i] += factor * a[i];
}

// Nothing if the degree is too large.
std::optional<Polynomial> product(const Polynomial& a, const Polynomial& b) {
  Polynomial made = {};
  for (int i = 0; i <= kDegree; ++i)
    for (int j = 0; j <= kDegree; ++j) {
      if (a[i] == 0 || b[j] == 0) continue;
      if (i + j > kDegree) return {};
      made[i + j] += a[i] * b[j];
    }
  return made;
}

std::optional<Expression> product(const Expression& a, const Expression& b) {
  const auto alone = product(a.alone, b.alone), first = product(a.with, b.alone), second = product(a.alone, b.with);
  if (!alone || !first || !second || (!is_zero(a.with) && !is_zero(b.with))) return {};
  Expression made{*alone, *first};
  add(made.with, *second, 1);
  return made;
}

class Finder {
 public:
  Finder(const Graph& graph, const std::map<std::string, at::Tensor>& constants)
      : graph_(graph), flow_(flow_of(graph)), readers_(graph.values.size()) {
    for (const auto& input : graph.inputs)
      if (const auto found = constants.find(input.name); found != constants.end() && found->second.numel() == 1)
        numbers_[input.value] = found->second.item<double>();
    for (int node = 0; node < std::ssize(graph.nodes); ++node)
      for (const auto& argument : graph.nodes[node].arguments)
        visit_values(argument, [&](int value) { readers_[value].push_back(node); });
    for (const auto& output : graph.outputs) readers_[output.value].push_back(-1);
  }

  struct Gelu {
    int x = 0, end = 0;
    std::set<int> calls;
    bool is_tanh = false;
  };

  // The GELU around node `function`, which calls tanh or erf.
  std::optional<Gelu> find(int function) {
    const GraphNode& node = graph_.nodes[function];
    t_ = -1;
    for (const int x : arguments_of(node.arguments[0].value)) {
      x_ = x;
      calls_.clear();
      t_ = -1;
      const auto inner = of_value(node.arguments[0].value);
      const bool is_tanh = node.name == "aten::tanh";
      if (!inner || !are_near(inner->alone, inner_of_gelu(is_tanh))) continue;
      const std::set<int> inner_calls = calls_;
      t_ = node.results[0].value;
      int made = t_;
      for (int call = 0; call < kLongest && readers_[made].size() == 1 && readers_[made][0] >= 0; ++call) {
        const GraphNode& next = graph_.nodes[readers_[made][0]];
        if (next.results.size() != 1) break;
        made = next.results[0].value;
        calls_ = inner_calls;
        calls_.insert(function);
        const auto outer = of_value(made);
        if (!outer) break;
        const Polynomial half = {0, 0.5};
        if (!are_near(outer->alone, half) || !are_near(outer->with, half)) continue;
        Gelu gelu{x, made, calls_, is_tanh};
        if (is_replaceable(gelu)) return gelu;
      }
    }
    return {};
  }

 private:
  static Polynomial inner_of_gelu(bool is_tanh) {
    const double slope = std::sqrt(2 / M_PI);
    return is_tanh ? Polynomial{0, slope, 0, slope * 0.044715} : Polynomial{0, M_SQRT1_2};
  }

  // The value and those from which it is computed, over a few calls.
  std::vector<int> arguments_of(int value) const {
    std::vector<int> found;
    if (value >= 0) found.push_back(value);
    for (size_t i = 0; i < found.size() && found.size() < kLongest; ++i) {
      if (flow_.producer[found[i]] < 0) continue;
      for (const auto& argument : graph_.nodes[flow_.producer[found[i]]].arguments)
        visit_values(argument, [&](int other) {
          if (std::ranges::find(found, other) == found.end()) found.push_back(other);
        });
    }
    return found;
  }

  std::optional<Expression> of_argument(const GraphArgument& argument) {
    if (argument.is_list) return {};
    if (argument.value >= 0) return of_value(argument.value);
    if (const auto number = number_of(argument)) return Expression{{*number}};
    return {};
  }

  static std::optional<double> number_of(const GraphArgument& argument) {
    const c10::IValue& constant = argument.constant;
    if (argument.value >= 0) return {};
    if (constant.isScalar())
      return constant.toScalar().isComplex() ? std::nullopt : std::optional(constant.toScalar().toDouble());
    if (constant.isTensor() && constant.toTensor().numel() == 1) return constant.toTensor().item<double>();
    return {};
  }

  std::optional<Expression> of_value(int value) {
    if (value == x_) return Expression{{0, 1}};
    if (value == t_) return Expression{{}, {1}};
    if (const auto number = numbers_.find(value); number != numbers_.end()) return Expression{{number->second}};
    const int call = flow_.producer[value];
    if (call < 0 || calls_.size() > 2 * kLongest) return {};
    calls_.insert(call);
    return of_call(graph_.nodes[call]);
  }

  std::optional<Expression> of_call(const GraphNode& node) {
    if (!node.is_operator || node.results.size() != 1 || node.arguments.size() < 2) return {};
    const bool sums = node.name == "aten::add" || node.name == "aten::sub", multiplies = node.name == "aten::mul",
               divides = node.name == "aten::div" && node.overload != "Tensor_mode" && node.overload != "Scalar_mode";
    if (node.name == "aten::pow") return of_power(node);
    if (!sums && !multiplies && !divides) return {};
    const auto a = of_argument(node.arguments[0]), b = of_argument(node.arguments[1]);
    if (!a || !b) return {};
    if (multiplies) return product(*a, *b);
    if (divides) {
      const bool is_number =
          is_zero(b->with) && std::all_of(b->alone.begin() + 1, b->alone.end(), [](double c) { return c == 0; });
      return is_number && b->alone[0] != 0 ? product(*a, Expression{{1 / b->alone[0]}}) : std::nullopt;
    }
    const auto alpha = node.arguments.size() > 2 ? number_of(node.arguments[2]) : std::nullopt;
    if (!alpha) return {};
    Expression made = *a;
    const double factor = node.name == "aten::sub" ? -*alpha : *alpha;
    add(made.alone, b->alone, factor);
    add(made.with, b->with, factor);
    return made;
  }

  std::optional<Expression> of_power(const GraphNode& node) {
    const auto base = of_argument(node.arguments[0]);
    const auto power = number_of(node.arguments[1]);
    if (!base || (power != 2.0 && power != 3.0)) return {};
    const auto square = product(*base, *base);
    return power == 2.0 || !square ? square : product(*square, *base);
  }

  bool is_replaceable(const Gelu& gelu) const {
    const GraphValue &x = graph_.values[gelu.x], &end = graph_.values[gelu.end];
    if (!x.dtype || !c10::isFloatingType(*x.dtype) || x.dtype != end.dtype || x.sizes != end.sizes) return false;
    if (flow_.changes.contains(flow_.storage[gelu.x])) return false;
    return std::ranges::all_of(gelu.calls, [&](int call) {
      const GraphNode& node = graph_.nodes[call];
      if (!node.has_grad || node.autocast) return false;
      const int made = node.results[0].value;
      return made == gelu.end ||
             std::ranges::all_of(readers_[made], [&](int reader) { return gelu.calls.contains(reader); });
    });
  }

  const Graph& graph_;
  const GraphFlow flow_;
  std::vector<std::vector<int>> readers_;  // by value: the calls that read it; -1: the caller of the program
  std::map<int, double> numbers_;          // by value: constants
  int x_ = -1, t_ = -1;                    // values; -1: none
  std::set<int> calls_;                    // calls of the expression that is being read
};

}  // namespace

void make_gelu_calls(Graph& graph, const std::map<std::string, at::Tensor>& constants) {
  const auto is_function = [](const GraphNode& node) {
    return node.is_operator && (node.name == "aten::tanh" || node.name == "aten::erf") && node.results.size() == 1;
  };
  if (std::ranges::none_of(graph.nodes, is_function)) return;
  Finder finder(graph, constants);
  std::map<int, GraphNode> made;  // by the call that it replaces
  std::set<int> dropped;
  for (int number = 0; number < std::ssize(graph.nodes); ++number) {
    if (!is_function(graph.nodes[number])) continue;
    const auto gelu = finder.find(number);
    if (!gelu) continue;
    const int last = *gelu->calls.rbegin();
    GraphNode node = graph.nodes[last];
    node.name = "aten::gelu";
    node.overload = "";
    node.arguments = {{.value = gelu->x}, {.constant = gelu->is_tanh ? "tanh" : "none"}};
    made[last] = std::move(node);
    dropped.insert(gelu->calls.begin(), gelu->calls.end());
  }
  std::vector<GraphNode> nodes;
  for (int number = 0; number < std::ssize(graph.nodes); ++number) {
    if (const auto gelu = made.find(number); gelu != made.end())
      nodes.push_back(std::move(gelu->second));
    else if (!dropped.contains(number))
      nodes.push_back(std::move(graph.nodes[number]));
  }
  graph.nodes = std::move(nodes);
}

}  // namespace shardline
