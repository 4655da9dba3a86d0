#include "models/program/split/dimension_rules.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <string_view>

#include "core/error.h"
#include "models/program/operators.h"

namespace shardline {
namespace {

// Calls whose results at each place depend only on the arguments at this place.
constexpr std::string_view kElementwise =
    " _to_copy abs add addcdiv addcmul alias clamp clamp_max clamp_min clone contiguous cos detach div "
    "dropout elu erf exp expand_as expm1 gelu hardsigmoid hardswish hardtanh leaky_relu lerp lift_fresh_copy log "
    "log1p logical_not logical_or masked_fill maximum minimum mish mul neg ones_like pow reciprocal relu "
    "relu6 rsqrt rsub selu sigmoid sign silu sin softplus sqrt square sub tanh to where zeros_like ";

}  // namespace

double product_of(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), 1.0, std::multiplies<>());
}

Dimension joined(const Dimension& outer, const Dimension& inner) {
  Dimension all = outer;
  all.insert(all.end(), inner.begin(), inner.end());
  return all;
}

Dimension flat(const Dimensions& dimensions, size_t begin, size_t end) {
  Dimension all;
  for (size_t i = begin; i < end; ++i) all = joined(all, dimensions[i]);
  return all;
}

bool is_elementwise(const GraphNode& node) {
  const std::string prefix = "aten::";
  return node.name.starts_with(prefix) &&
         kElementwise.find(cat(' ', node.name.substr(prefix.size()), ' ')) != std::string_view::npos;
}

DimensionRules::DimensionRules(const Program& program, const ObservedSizes& sizes, const std::set<int>& gathers,
                               ProgramDimensions& found)
    : program_(program), sizes_(sizes), gathers_(gathers), found_(found), atoms_(found.atoms), weight_(sizes.size()) {
  std::map<std::string, Dimensions> by_name;  // a parameter may be used by several inputs
  for (const auto& input : program.graph().inputs) {
    if (input.kind != GraphInput::Kind::parameter || !sizes[input.value]) continue;
    const auto [known, is_new] = by_name.try_emplace(input.name);
    if (is_new) known->second = atoms_.make_all(*sizes[input.value]);
    found_.of_value[input.value] = known->second;
    weight_[input.value] = input.name;
  }
}

DimensionRules::Rule DimensionRules::rule_of(const GraphNode& node) {
  using Self = DimensionRules;
  static const std::map<std::string, Rule> rules = {{"linear", &Self::linear},
                                                    {"matmul", &Self::matmul},
                                                    {"mm", &Self::matmul},
                                                    {"bmm", &Self::matmul},
                                                    {"addmm", &Self::addmm},
                                                    {"baddbmm", &Self::baddbmm},
                                                    {"conv1d", &Self::convolution},
                                                    {"conv1d.padding", &Self::convolution},
                                                    {"conv2d", &Self::convolution},
                                                    {"conv2d.padding", &Self::convolution},
                                                    {"conv3d", &Self::convolution},
                                                    {"conv3d.padding", &Self::convolution},
                                                    {"convolution", &Self::convolution},
                                                    {"einsum", &Self::einsum},
                                                    {"_grouped_mm", &Self::grouped_product},
                                                    {"embedding", &Self::embedding},
                                                    {"layer_norm", &Self::norm},
                                                    {"rms_norm", &Self::norm},
                                                    {"softmax.int", &Self::softmax},
                                                    {"_softmax", &Self::softmax},
                                                    {"log_softmax.int", &Self::softmax},
                                                    {"mean.dim", &Self::reduction},
                                                    {"sum.dim_IntList", &Self::reduction},
                                                    {"amax", &Self::reduction},
                                                    {"amin", &Self::reduction},
                                                    {"view", &Self::view},
                                                    {"reshape", &Self::view},
                                                    {"_unsafe_view", &Self::view},
                                                    {"flatten.using_ints", &Self::view},
                                                    {"unflatten.int", &Self::view},
                                                    {"transpose.int", &Self::transpose},
                                                    {"permute", &Self::permute},
                                                    {"t", &Self::reverse},
                                                    {"numpy_T", &Self::reverse},
                                                    {"mT", &Self::matrix_transpose},
                                                    {"unsqueeze", &Self::unsqueeze},
                                                    {"squeeze.dim", &Self::squeeze},
                                                    {"expand", &Self::expand},
                                                    {"broadcast_to", &Self::expand},
                                                    {"repeat", &Self::repeat},
                                                    {"index.Tensor", &Self::pick},
                                                    {"gather", &Self::gather},
                                                    {"index_select", &Self::select},
                                                    {"cat", &Self::cat_tensors},
                                                    {"stack", &Self::stack},
                                                    {"type_as", &Self::like_self},
                                                    {"split.Tensor", &Self::split},
                                                    {"split.sizes", &Self::split},
                                                    {"split_with_sizes", &Self::split},
                                                    {"chunk", &Self::split},
                                                    {"unbind.int", &Self::take},
                                                    {"select.int", &Self::take},
                                                    {"slice.Tensor", &Self::slice},
                                                    {"narrow", &Self::select},
                                                    {"pad", &Self::pad},
                                                    {"constant_pad_nd", &Self::pad},
                                                    {"scaled_dot_product_attention", &Self::attention},
                                                    {"sym_size.int", &Self::size}};
  const std::string prefix = "aten::";
  if (!node.name.starts_with(prefix)) return &Self::unknown;
  if (is_elementwise(node)) return &Self::elementwise;
  const auto found = rules.find(node.text().substr(prefix.size()));
  return found == rules.end() ? &Self::unknown : found->second;
}

void DimensionRules::apply(int node) {
  node_ = node;
  bool follows = call().name == kDropout || call().name == kAttention, all_weights = true;
  std::string weight;
  visit_readings(program_.graph(), node, [&](const Reading&, int value) {
    follows |= found_.of_value.contains(value);
    if (!sizes_[value]) return;
    all_weights = all_weights && !weight_[value].empty();
    if (weight.empty()) weight = weight_[value];
  });
  if (uses_changed_memory()) return forbid_all(cat(here(), " uses memory that is changed in place"));
  if (!follows) return;
  if (all_weights)
    for (const auto& result : call().results) weight_[result.value] = weight;
  (this->*rule_of(call()))();
}

// ---- the call

bool DimensionRules::uses_changed_memory() const {
  const GraphFlow& flow = program_.flow;
  const auto is_changed = [&](int value) {
    return flow.is_trained[value] && flow.changes.contains(flow.storage[value]);
  };
  bool uses = std::ranges::any_of(call().results, [&](const auto& result) { return is_changed(result.value); });
  for (const auto& given : call().arguments) visit_values(given, [&](int value) { uses |= is_changed(value); });
  return uses;
}

const GraphArgument& DimensionRules::argument(const char* name) const {
  return call().arguments[place_of_argument(call(), name)];
}

bool DimensionRules::is_given(const char* name) const {
  const GraphArgument& given = argument(name);
  return given.value >= 0 || given.is_list || !given.constant.isNone();
}

int64_t DimensionRules::integer(const char* name) const {
  const GraphArgument& given = argument(name);
  if (given.value >= 0) return std::numeric_limits<int64_t>::min() / 2;  // unknown: no dimension
  return given.constant.isInt() ? given.constant.toInt() : 0;
}

bool DimensionRules::is_on(const char* name) const {
  const GraphArgument& given = argument(name);
  return given.value >= 0 || (given.constant.isBool() && given.constant.toBool());
}

std::vector<int64_t> DimensionRules::integers(const char* name) const {
  const GraphArgument& given = argument(name);
  if (given.constant.isInt()) return {given.constant.toInt()};
  return given.constant.isIntList() ? given.constant.toIntVector() : std::vector<int64_t>();
}

int64_t DimensionRules::counted(int64_t dimension, int64_t of) {
  return dimension < 0 ? dimension + of : dimension;
}

const Dimensions& DimensionRules::read(const char* name) {
  return read_at({node_, place_of_argument(call(), name)});
}

const Dimensions& DimensionRules::read_at(const Reading& reading) {
  const GraphArgument& given = call().arguments[reading.argument];
  const int value = reading.item < 0 ? given.value : given.items[reading.item].value;
  const auto known = found_.of_value.find(value);
  if (known != found_.of_value.end()) return known->second;
  auto& own = found_.of_reading[reading];
  if (own.empty() && value >= 0 && sizes_[value]) own = atoms_.make_all(*sizes_[value]);
  return own;
}

const std::vector<int64_t>& DimensionRules::result_sizes() const {
  SL_ASSERT(!call().results.empty() && sizes_[call().results[0].value], call().text(), " makes a tensor");
  return *sizes_[call().results[0].value];
}

std::string DimensionRules::here() const {
  return call().name.substr(call().name.find("::") + 2) + place_of(call());
}

// ---- what rules do

void DimensionRules::make(const Dimensions& result) {
  for (const auto& made : call().results) found_.of_value[made.value] = result;
}

int64_t DimensionRules::size_of(const Dimension& dimension) const {
  return atoms_.size_of(atoms_.resolved(dimension));
}

void DimensionRules::forbid_all(const std::string& why) {
  visit_readings(program_.graph(), node_, [&](const Reading&, int value) {
    const auto known = found_.of_value.find(value);
    if (known != found_.of_value.end())
      for (const auto& dimension : known->second) atoms_.forbid(dimension, why);
  });
  for (const auto& result : call().results) {
    if (!sizes_[result.value]) continue;
    Dimensions made = atoms_.make_all(*sizes_[result.value]);
    for (const auto& dimension : made) atoms_.forbid(dimension, why);
    found_.of_value[result.value] = std::move(made);
  }
}

void DimensionRules::unknown() {
  forbid_all(cat("there is no rule for ", here()));
  if (is_product(call().name)) add_whole_product();
}

// A product that every rank computes is the reason why its weight stays whole.
void DimensionRules::add_whole_product() {
  int weight = -1;
  bool has_input_gradient = false;
  double numbers = product_of(result_sizes());  // of the result and all factors
  visit_readings(program_.graph(), node_, [&](const Reading&, int value) {
    if (!sizes_[value] || sizes_[value]->size() < 2) return;  // a bias
    numbers *= product_of(*sizes_[value]);
    if (!weight_[value].empty())
      weight = value;
    else
      has_input_gradient |= found_.of_value.contains(value);
  });
  if (weight < 0) return;
  const Dimensions& dimensions = found_.of_value.at(weight);
  // A matrix product [m, k] x [k, n] has m k n multiplications, the root of m k x k n x m n.
  found_.products.push_back({.node = node_,
                             .parameter = weight_[weight],
                             .flops = 2 * std::sqrt(numbers),
                             .has_input_gradient = has_input_gradient,
                             .rows = {},
                             .summed = flat(dimensions, 0, dimensions.size()),
                             .columns = {}});
}

// result [..., m, n] = left [..., m, k] x right [..., k, n], or right [n, k] transposed. A bias is added to the last
// dimensions of the result.
void DimensionRules::multiply(const char* left, const char* right, bool is_transposed, const char* bias) {
  const Dimensions a = read(left), b = read(right);
  if (a.size() < (is_transposed ? 1 : 2) || b.size() < 2) return unknown();
  const Dimension& k_of_b = b[b.size() - (is_transposed ? 1 : 2)];
  Dimensions result(std::max(a.size(), is_transposed ? 0 : b.size()));
  for (size_t i = 0; i + 1 < a.size(); ++i) result[result.size() - a.size() + i] = a[i];
  result.back() = b[b.size() - (is_transposed ? 2 : 1)];
  if (!is_transposed)
    for (size_t i = 0; i + 2 < b.size(); ++i) {  // batches
      Dimension& batch = result[result.size() - b.size() + i];
      if (batch.empty())
        batch = b[i];
      else if (!b[i].empty())
        atoms_.unite(batch, b[i]);
    }
  atoms_.unite(a.back(), k_of_b);
  if (bias && is_given(bias)) {
    const Dimensions added = read(bias);
    for (size_t i = 0; i < std::min(added.size(), result.size()); ++i)
      if (const Dimension& one = added[added.size() - 1 - i]; !one.empty())
        atoms_.unite(one, result[result.size() - 1 - i]);
  }
  sum_over(result, k_of_b, left, right);
}

void DimensionRules::sum_over(const Dimensions& result, const Dimension& summed, const char* left, const char* right) {
  const std::string &of_left = weight_[argument(left).value], &of_right = weight_[argument(right).value];
  const std::string weight = of_right.empty() ? of_left : of_right;
  found_.summed[node_] = summed;
  if (weight.empty()) {
    atoms_.forbid(summed, cat(here(), " sums over them in a product of two activations"));
    return make(result);
  }
  make_product(result,
               {.node = node_,
                .parameter = weight,
                .flops = 2 * product_of(result_sizes()) * size_of(summed),
                .has_input_gradient = found_.of_value.contains(argument(left).value),
                .rows = flat(result, 0, result.size() - 1),
                .summed = summed,
                .columns = result.back()},
               std::ssize(result) - 1);
}

void DimensionRules::make_product(const Dimensions& result, WeightProduct product, int columns) {
  found_.products.push_back(std::move(product));
  if (!gathers_.contains(node_)) return make(result);
  found_.gathered[node_] = result;
  Dimensions whole = result;
  whole[columns] = atoms_.make(result_sizes()[columns]);
  make(whole);
}

// ---- the rules

void DimensionRules::elementwise() {
  const Dimensions result = atoms_.make_all(result_sizes());
  make(result);
  visit_readings(program_.graph(), node_, [&](const Reading& reading, int value) {
    if (!sizes_[value]) return;
    const Dimensions self = read_at(reading);
    if (self.size() > result.size()) return forbid_all(cat(here(), " drops some of them"));
    for (size_t i = 0; i < self.size(); ++i)
      if (const Dimension& one = self[self.size() - 1 - i]; !one.empty())
        atoms_.unite(result[result.size() - 1 - i], one);
  });
}

void DimensionRules::linear() {
  multiply("input", "weight", true, "bias");
}

void DimensionRules::matmul() {
  multiply("self", call().name == "aten::matmul" ? "other" : "mat2", false, nullptr);
}

void DimensionRules::addmm() {
  multiply("mat1", "mat2", false, "self");
  const auto is_one = [&](const char* name) {
    const GraphArgument& factor = argument(name);
    return factor.value < 0 && factor.constant.isScalar() && factor.constant.toScalar().equal(1);
  };
  if ((!is_one("beta") || !is_one("alpha")) && found_.summed.contains(node_))
    atoms_.forbid(found_.summed.at(node_), cat(here(), " scales its sums"));
}

void DimensionRules::baddbmm() {
  multiply("batch1", "batch2", false, "self");
  if (found_.summed.contains(node_)) atoms_.forbid(found_.summed.at(node_), cat(here(), " adds to its sums"));
}

void DimensionRules::embedding() {
  const Dimensions table = read("weight");
  if (table.size() != 2) return unknown();
  Dimensions result = atoms_.make_all(result_sizes());
  for (const auto& dimension : result) atoms_.forbid(dimension, cat("they are tokens that ", here(), " looks up"));
  result.back() = table[1];
  const bool has_words = size_of(table[0]) == program_.vocab_size;
  if (!has_words || is_on("scale_grad_by_freq") || is_on("sparse"))
    atoms_.forbid(table[0], cat("the table of ", here(), " cannot be split by words"));
  found_.summed[node_] = table[0];
  make(result);
}

void DimensionRules::norm() {
  const Dimensions self = read("input");
  const std::string why = cat(here(), " needs all of them");
  const size_t normalized = integers("normalized_shape").size();
  if (normalized == 0 || normalized > self.size()) return unknown();
  for (size_t i = self.size() - normalized; i < self.size(); ++i) atoms_.forbid(self[i], why);
  for (const char* name : {"weight", "bias"}) {
    if (!find_operator(call().name, call().overload)->schema().argumentIndexWithName(name) || !is_given(name)) continue;
    for (const auto& dimension : read(name)) atoms_.forbid(dimension, why);
  }
  make(self);
}

void DimensionRules::softmax() {
  const Dimensions self = read("self");
  const int64_t dimension = counted(integer("dim"), self.size());
  if (argument("dim").value >= 0 || dimension < 0 || dimension >= std::ssize(self)) return unknown();
  atoms_.forbid(self[dimension], cat(here(), " needs all of them"));
  make(self);
}

void DimensionRules::reduction() {
  if (call().overload != "dim" && call().overload != "dim_IntList" && call().name != "aten::amax" &&
      call().name != "aten::amin")
    return unknown();
  const Dimensions self = read("self");
  std::vector<bool> is_reduced(self.size(), integers("dim").empty());
  for (const int64_t dimension : integers("dim"))
    if (const auto place = counted(dimension, self.size()); place >= 0 && place < std::ssize(self))
      is_reduced[place] = true;
  const bool keeps = is_on("keepdim");
  Dimensions result;
  for (size_t i = 0; i < self.size(); ++i) {
    if (is_reduced[i]) atoms_.forbid(self[i], cat(here(), " needs all of them"));
    if (!is_reduced[i]) result.push_back(self[i]);
    if (is_reduced[i] && keeps) result.push_back({});
  }
  make(result);
}

void DimensionRules::view() {
  const Dimensions self = read("self");
  if (const auto result = atoms_.cut(flat(self, 0, self.size()), result_sizes())) return make(*result);
  // First dimensions that are in both stay what they are.
  const auto& of_self = program_.graph().values[argument("self").value].sizes;
  const auto& of_result = program_.graph().values[call().results[0].value].sizes;
  size_t kept = 0;
  while (kept < self.size() && kept < of_result.size() && of_self.at(kept) == of_result[kept]) ++kept;
  const std::string why = cat(here(), " cuts them unequally");
  Dimensions result = atoms_.make_all(result_sizes());
  for (size_t i = 0; i < kept; ++i) result[i] = self[i];
  for (const Dimensions& dimensions : {self, result})
    for (size_t i = kept; i < dimensions.size(); ++i) atoms_.forbid(dimensions[i], why);
  make(result);
}

void DimensionRules::transpose() {
  Dimensions result = read("self");
  const int64_t a = counted(integer("dim0"), result.size()), b = counted(integer("dim1"), result.size());
  if (a < 0 || b < 0 || a >= std::ssize(result) || b >= std::ssize(result)) return unknown();
  std::swap(result[a], result[b]);
  make(result);
}

void DimensionRules::permute() {
  const Dimensions self = read("self");
  Dimensions result;
  for (const int64_t dimension : integers("dims")) {
    const int64_t place = counted(dimension, self.size());
    if (place < 0 || place >= std::ssize(self)) return unknown();
    result.push_back(self[place]);
  }
  if (result.size() != self.size()) return unknown();
  make(result);
}

void DimensionRules::reverse() {
  Dimensions result = read("self");
  std::ranges::reverse(result);
  make(result);
}

void DimensionRules::matrix_transpose() {
  Dimensions result = read("self");
  if (result.size() < 2) return unknown();
  std::swap(result[result.size() - 2], result.back());
  make(result);
}

void DimensionRules::unsqueeze() {
  Dimensions result = read("self");
  const int64_t dimension = counted(integer("dim"), result.size() + 1);
  if (dimension < 0 || dimension > std::ssize(result)) return unknown();
  result.insert(result.begin() + dimension, Dimension());
  make(result);
}

void DimensionRules::squeeze() {
  Dimensions result = read("self");
  const int64_t dimension = counted(integer("dim"), result.size());
  if (dimension < 0 || dimension >= std::ssize(result)) return unknown();
  if (result.size() > result_sizes().size()) result.erase(result.begin() + dimension);
  make(result);
}

void DimensionRules::expand() {
  const Dimensions self = read("self");
  Dimensions result = atoms_.make_all(result_sizes());
  for (size_t i = 0; i < result.size(); ++i) {
    const size_t of_self = i + self.size() - result.size();
    if (i + self.size() >= result.size() && !self[of_self].empty()) result[i] = self[of_self];
  }
  make(result);
}

// Copies lie outside of what is copied.
void DimensionRules::repeat() {
  const Dimensions self = read("self");
  Dimensions result = atoms_.make_all(result_sizes());
  const size_t added = result.size() - self.size();
  for (size_t i = 0; i < result.size(); ++i) {
    const int64_t of_self = i < added ? 1 : size_of(self[i - added]);
    if (of_self == 0) return unknown();
    const Dimension copies = atoms_.make(result_sizes()[i] / of_self);
    atoms_.forbid(copies, cat(here(), " makes copies"));
    result[i] = i < added ? copies : joined(copies, self[i - added]);
  }
  make(result);
}

void DimensionRules::cat_tensors() {
  const int tensors = place_of_argument(call(), "tensors"), count = std::ssize(call().arguments[tensors].items);
  Dimensions result = atoms_.make_all(result_sizes());
  const int64_t along = counted(integer("dim"), result.size());
  if (count == 0 || along < 0 || along >= std::ssize(result)) return unknown();
  Dimensions parts;  // along `along`
  bool are_equal = true;
  for (int i = 0; i < count; ++i) {
    const Dimensions self = read_at({node_, tensors, i});
    if (self.size() != result.size()) return unknown();
    parts.push_back(self[along]);
    for (int64_t d = 0; d < std::ssize(result); ++d)
      if (d != along && !self[d].empty()) atoms_.unite(result[d], self[d]);
    are_equal = are_equal && size_of(parts[i]) == size_of(parts[0]);
  }
  const std::string why = cat(here(), " puts parts side by side");
  const Dimension number = atoms_.make(count);
  atoms_.forbid(number, why);
  for (const Dimension& part : parts)
    if (are_equal)
      atoms_.unite(parts[0], part);
    else
      atoms_.forbid(part, why);
  if (are_equal)
    result[along] = joined(number, parts[0]);
  else
    atoms_.forbid(result[along], why);
  make(result);
}

void DimensionRules::stack() {
  const int tensors = place_of_argument(call(), "tensors"), count = std::ssize(call().arguments[tensors].items);
  const Dimensions result = atoms_.make_all(result_sizes());
  const int64_t along = counted(integer("dim"), result.size());
  if (count == 0 || along < 0 || along >= std::ssize(result)) return unknown();
  for (int i = 0; i < count; ++i) {
    Dimensions self = read_at({node_, tensors, i});
    if (self.size() + 1 != result.size()) return unknown();
    self.insert(self.begin() + along, Dimension());
    for (size_t d = 0; d < result.size(); ++d)
      if (!self[d].empty()) atoms_.unite(result[d], self[d]);
  }
  atoms_.forbid(result[along], cat(here(), " puts parts side by side"));
  make(result);
}

void DimensionRules::like_self() {
  make(Dimensions(read("self")));
}

// query [..., heads, l, e], key [..., heads or groups of them, s, e], value [..., as key, s, columns]
void DimensionRules::attention() {
  const Dimensions query = read("query"), key = read("key"), value = read("value");
  const size_t rank = query.size();
  if (rank < 3 || key.size() != rank || value.size() != rank) return unknown();
  const std::string why = cat(here(), " needs all of them");
  for (const auto& dimension : {query[rank - 2], query[rank - 1], key[rank - 2], key[rank - 1], value[rank - 2]})
    atoms_.forbid(dimension, why);
  for (size_t i = 0; i + 2 < rank; ++i)
    for (const Dimension& other : {key[i], value[i]}) {
      const int64_t all = size_of(query[i]), groups = size_of(other);
      const auto parts = groups > 0 && all % groups == 0 ? atoms_.cut(query[i], {groups, all / groups}) : std::nullopt;
      if (parts && (all == groups || groups == 1 || is_on("enable_gqa"))) {
        atoms_.unite((*parts)[0], other);
      } else {
        atoms_.forbid(query[i], cat(here(), " shares keys among them"));
        atoms_.forbid(other, cat(here(), " shares keys among them"));
      }
    }
  if (is_given("attn_mask")) {
    const Dimensions mask = read("attn_mask");
    for (size_t i = 0; i < mask.size() && i < rank; ++i) {
      const Dimension& one = mask[mask.size() - 1 - i];
      if (one.empty()) continue;
      if (i < 2)
        atoms_.forbid(one, why);
      else
        atoms_.unite(query[rank - 1 - i], one);
    }
  }
  Dimensions result = query;
  result.back() = value.back();
  make(result);
}

void DimensionRules::size() {
  const Dimensions self = read("self");
  const int64_t along = call().overload == "int" ? counted(integer("dim"), self.size()) : -1;
  if (along < 0 || along >= std::ssize(self)) return forbid_all(cat(here(), " computes with their number"));
  atoms_.forbid(self[along], cat(here(), " computes with their number"));
}

}  // namespace shardline
