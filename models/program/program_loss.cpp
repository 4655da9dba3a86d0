#include "models/program/program_loss.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.h"
#include "models/graph/row_losses.h"
#include "models/program/operators.h"

namespace shardline {
namespace {

using LossKind = ProgramLossTerm::Kind;

constexpr int kMean = 1;  // value of the argument `reduction`
// The first name of a kind is shown; the others are those of models made of layers.
constexpr std::array<std::pair<const char*, LossKind>, 5> kFunctions = {{{"cross_entropy", LossKind::cross_entropy},
                                                                         {"mse", LossKind::squared_error},
                                                                         {"bce_with_logits", LossKind::binary},
                                                                         {"squared_error", LossKind::squared_error},
                                                                         {"binary_cross_entropy", LossKind::binary}}};

const char* name_of(LossKind kind) {
  for (const auto& [name, of_name] : kFunctions)
    if (of_name == kind) return name;
  return "another scalar";
}

class TermFinder {
 public:
  TermFinder(const Graph& graph, const GraphFlow& flow) : graph_(graph), flow_(flow) {}

  // False if the value is not a sum of means that can be separated.
  bool find(int value, double factor) {
    const int producer = value < 0 ? -1 : flow_.producer[value];
    if (producer < 0 || !flow_.changes_before(value, graph_.nodes.size()).empty()) return false;
    const GraphNode& node = graph_.nodes[producer];
    if (node.name == "aten::add" || node.name == "aten::sub") return find_sum(node, factor);
    if (node.name == "aten::mul" || node.name == "aten::div") return find_multiple(node, factor);
    if (node.name == "aten::to" || node.name == "aten::contiguous" || node.name == "aten::clone" ||
        node.name == "aten::alias")
      return find(node.arguments[0].value, factor);
    return find_mean(node, factor);
  }

  std::vector<ProgramLossTerm> terms;

 private:
  static const GraphArgument& argument(const GraphNode& node, const char* name) {
    return node.arguments[place_of_argument(node, name)];
  }

  static std::optional<double> number(const GraphArgument& argument) {
    if (argument.value >= 0 || argument.is_list) return {};
    if (argument.constant.isScalar()) return argument.constant.toScalar().toDouble();
    if (argument.constant.isTensor() && argument.constant.toTensor().numel() == 1)
      return argument.constant.toTensor().item<double>();
    return {};
  }

  bool find_sum(const GraphNode& node, double factor) {
    const auto alpha = number(argument(node, "alpha"));
    if (!alpha) return false;
    const double of_other = (node.name == "aten::sub" ? -1 : 1) * *alpha * factor;
    return find_part(argument(node, "self"), factor) && find_part(argument(node, "other"), of_other);
  }

  bool find_part(const GraphArgument& part, double factor) {
    if (part.value >= 0) return find(part.value, factor);
    return number(part) == 0.0;
  }

  bool find_multiple(const GraphNode& node, double factor) {
    const GraphArgument &self = argument(node, "self"), &other = argument(node, "other");
    const bool divides = node.name == "aten::div";
    if (const auto by = number(other); by && self.value >= 0 && node.overload != "Tensor_mode")
      return find(self.value, divides ? factor / *by : factor * *by);
    if (const auto by = number(self); by && !divides && other.value >= 0) return find(other.value, factor * *by);
    return false;
  }

  bool find_mean(const GraphNode& node, double factor) {
    const bool is_entropy = node.name == kCrossEntropy, is_binary = node.name == kBinaryLoss;
    if (!is_entropy && !is_binary && node.name != kSquaredError) return false;
    if (argument(node, "reduction").constant != c10::IValue(kMean)) return false;
    const auto is_none = [&](const char* name) {
      return argument(node, name).value < 0 && argument(node, name).constant.isNone();
    };
    ProgramLossTerm term{.kind = is_entropy  ? LossKind::cross_entropy
                                 : is_binary ? LossKind::binary
                                             : LossKind::squared_error,
                         .input = argument(node, "self").value,
                         .target = argument(node, "target").value,
                         .factor = factor};
    if (term.input < 0 || term.target < 0) return false;
    if (is_binary && (!is_none("weight") || !is_none("pos_weight"))) return false;
    if (is_entropy) {
      if (!is_none("weight") || number(argument(node, "label_smoothing")) != 0.0) return false;
      if (graph_.values[term.target].dtype != at::kLong) return false;
      const GraphArgument& ignored = argument(node, "ignore_index");
      term.ignored_value = ignored.value;
      if (ignored.value < 0) term.ignored = ignored.constant.toInt();
    }
    terms.push_back(term);
    return true;
  }

  const Graph& graph_;
  const GraphFlow& flow_;
};

}  // namespace

bool ProgramLoss::has(LossKind kind) const {
  return std::ranges::any_of(terms, [&](const auto& term) { return term.kind == kind; });
}

std::vector<int> ProgramLoss::values() const {
  std::vector<int> values;
  for (const auto& term : terms)
    for (const int value : {term.input, term.target, term.ignored_value})
      if (value >= 0 && std::ranges::find(values, value) == values.end()) values.push_back(value);
  return values;
}

ProgramLoss loss_terms(const Graph& graph, const GraphFlow& flow, int scalar) {
  TermFinder finder(graph, flow);
  ProgramLoss loss;
  if (finder.find(scalar, 1))
    loss.terms = std::move(finder.terms);
  else
    loss.terms = {{.kind = LossKind::whole, .input = scalar}};
  for (const auto& term : loss.terms) loss.text += cat(loss.text.empty() ? "" : " + ", name_of(term.kind));
  return loss;
}

std::optional<LossKind> loss_function(const std::string& name) {
  for (const auto& [known, kind] : kFunctions)
    if (name == known) return kind;
  return has_loss(name) ? std::optional(LossKind::added) : std::nullopt;
}

const char* loss_functions() {
  return "\"cross_entropy\", \"mse\", \"bce_with_logits\" or a loss that your program registers";
}

}  // namespace shardline
