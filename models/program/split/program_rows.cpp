#include "models/program/split/program_rows.h"

#include <algorithm>
#include <ranges>

#include "models/program/operators.h"
#include "models/program/program_inputs.h"
#include "models/program/split/dimension_rules.h"

namespace shardline {
namespace {

constexpr int kLeadingOfGrid = 2;  // [batch, length, ...]

// The dimensions over which a call computes; nothing if it does not state them.
std::vector<int64_t> computed_over(const GraphNode& node, const char* name, int64_t rank) {
  const GraphArgument& given = node.arguments[place_of_argument(node, name)];
  std::vector<int64_t> dimensions;
  if (given.constant.isInt()) dimensions = {given.constant.toInt()};
  if (given.constant.isIntList()) dimensions = given.constant.toIntVector();
  for (auto& dimension : dimensions)
    if (dimension < 0) dimension += rank;
  return dimensions;
}

bool is_on(const GraphNode& node, const char* name) {
  const auto& constant = node.arguments[place_of_argument(node, name)].constant;
  return constant.isBool() && constant.toBool();
}

// Whether a call on a tensor with `rank` dimensions computes only over those after the first `leading`, and keeps all.
bool spares_first(const GraphNode& node, int64_t rank, int leading) {
  const std::string text = node.text();
  std::vector<int64_t> over;
  if (text == "aten::layer_norm" || text == "aten::rms_norm") {
    const auto normalized = node.arguments[place_of_argument(node, "normalized_shape")].constant;
    if (normalized.isIntList()) over = {rank - std::ssize(normalized.toIntVector())};
  } else if (text == "aten::softmax.int") {
    over = computed_over(node, "dim", rank);
  } else if ((text == "aten::mean.dim" || text == "aten::sum.dim_IntList") && is_on(node, "keepdim")) {
    over = computed_over(node, "dim", rank);
  }
  return !over.empty() && std::ranges::all_of(over, [&](int64_t dimension) { return dimension >= leading; });
}

}  // namespace

ProgramRows::ProgramRows(const Program& program, const ProgramDimensions& found)
    : found_(found), leading_(program.graph().values.size()) {
  for (const auto& layer : program.layers)
    for (const int value : layer.border)
      if (const HiddenForm form = *hidden_form(program, value);
          program.graph().values[value].sizes.size() == 3 && form.batch == 0 && form.length == 1)
        borders_.insert(value);
  const auto border = std::ranges::find_if(borders_, [&](int value) {
    const auto known = found.of_value.find(value);
    return known != found.of_value.end() && known->second.size() > kLeadingOfGrid;
  });
  if (program.has_target() || border == borders_.end()) return;
  samples_ = found.atoms.resolved(found.of_value.at(*border)[0]);
  places_ = found.atoms.resolved(found.of_value.at(*border)[1]);
  if (samples_.empty() || places_.empty()) return;
  const GraphFlow& flow = program.flow;
  for (const auto& [value, dimensions] : found.of_value) {
    const auto dtype = program.graph().values[value].dtype;
    if (dtype && c10::isFloatingType(*dtype) && !flow.changes.contains(flow.storage[value]))
      leading_[value] = leading_of(dimensions);
  }
  for (int node = 0; node < std::ssize(program.graph().nodes); ++node)
    if (makes_rows_alone(program.graph(), node)) nodes_.insert(node);
}

bool ProgramRows::has_tokens(const Dimension& dimension) const {
  return std::ranges::any_of(found_.atoms.resolved(dimension), [&](int atom) {
    return std::ranges::count(samples_, atom) > 0 || std::ranges::count(places_, atom) > 0;
  });
}

bool ProgramRows::has_tokens(const Graph& graph, const Reading& reading) const {
  const Dimensions* dimensions = found_.read_at(graph, reading);
  return dimensions && std::ranges::any_of(*dimensions, [&](const auto& one) { return has_tokens(one); });
}

int ProgramRows::leading_of(const Dimensions& dimensions) const {
  const auto is = [&](size_t place, const Dimension& atoms) {
    return place < dimensions.size() && found_.atoms.resolved(dimensions[place]) == atoms;
  };
  Dimension all = samples_;
  all.insert(all.end(), places_.begin(), places_.end());
  const int leading = is(0, all) ? 1 : is(0, samples_) && is(1, places_) ? kLeadingOfGrid : 0;
  if (leading == 0 || std::ssize(dimensions) <= leading) return 0;
  const bool has_more = std::any_of(dimensions.begin() + leading, dimensions.end(),
                                    [&](const Dimension& dimension) { return has_tokens(dimension); });
  return has_more ? 0 : leading;
}

bool ProgramRows::is_aligned(const Dimensions& read, const Dimensions& result, int leading) const {
  if (read.size() > result.size()) return false;
  for (size_t i = 0; i < read.size(); ++i) {
    const size_t place = i + result.size() - read.size();
    const Dimension atoms = found_.atoms.resolved(read[i]);
    const bool is_row = std::cmp_less(place, leading);
    if (is_row ? !atoms.empty() && atoms != found_.atoms.resolved(result[place]) : has_tokens(read[i])) return false;
  }
  return true;
}

bool ProgramRows::makes_rows_alone(const Graph& graph, int index) const {
  const GraphNode& node = graph.nodes[index];
  if (!node.is_operator || node.results.size() != 1 || leading_[node.results[0].value] == 0) return false;
  const int leading = leading_[node.results[0].value];
  const Dimensions& result = found_.of_value.at(node.results[0].value);
  const bool is_view =
      node.text() == "aten::view" || node.text() == "aten::reshape" || node.text() == "aten::_unsafe_view";
  if (!is_view && !is_elementwise(node) && !spares_first(node, std::ssize(result), leading)) return false;
  bool has_rows = false, are_aligned = true;
  visit_readings(graph, index, [&](const Reading& reading, int value) {
    const Dimensions* dimensions = found_.read_at(graph, reading);
    if (!dimensions) return;  // a number
    has_rows |= leading_[value] > 0;
    are_aligned &= is_view ? leading_[value] > 0 : is_aligned(*dimensions, result, leading);
  });
  return has_rows && are_aligned;
}

}  // namespace shardline
