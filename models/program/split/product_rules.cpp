// Rules of convolutions, of products whose rows choose a matrix, and of products that are written as sums over letters.
#include <algorithm>
#include <map>

#include "core/error.h"
#include "models/program/operators.h"
#include "models/program/split/dimension_rules.h"

namespace shardline {

// input [batch, groups * in, ...], weight [groups * out, in, ...] -> [batch, groups * out, ...]
void DimensionRules::convolution() {
  const Dimensions input = read("input"), weight = read("weight");
  const int value = argument("weight").value;
  const int64_t groups = integer("groups");
  const bool is_other = call().name == "aten::convolution" && is_on("transposed");
  if (value < 0 || weight_[value].empty() || input.size() != weight.size() || groups < 1 || is_other) return unknown();
  const auto of_input = atoms_.cut(input[1], {groups, size_of(input[1]) / groups});
  const auto of_weight = atoms_.cut(weight[0], {groups, size_of(weight[0]) / groups});
  if (!of_input || !of_weight) return unknown();
  const std::string why = cat(here(), " slides over them");
  Dimensions result = atoms_.make_all(result_sizes());
  for (size_t i = 2; i < result.size(); ++i)
    for (const auto& dimension : {input[i], weight[i], result[i]}) atoms_.forbid(dimension, why);
  const bool has_input_gradient = found_.of_value.contains(argument("input").value);
  if (groups > 1 && gathers_.contains(node_)) {
    found_.sliced[node_] = input;
    found_.sliced[node_][1] = joined((*of_weight)[0], atoms_.make(size_of((*of_input)[1])));
  } else {
    atoms_.unite((*of_input)[0], (*of_weight)[0]);
    atoms_.unite((*of_input)[1], weight[1]);
  }
  if (groups > 1) atoms_.forbid(weight[1], cat(here(), " sums over them in each of its groups"));
  if (!has_input_gradient) atoms_.forbid(weight[1], cat("they are channels of the input that ", here(), " is given"));
  result[0] = input[0];
  result[1] = weight[0];
  if (is_given("bias")) atoms_.unite(read("bias")[0], weight[0]);
  found_.summed[node_] = weight[1];
  make_product(result,
               {.node = node_,
                .parameter = weight_[value],
                .flops = 2 * product_of(result_sizes()) * product_of(*sizes_[value]) / (*sizes_[value])[0],
                .has_input_gradient = has_input_gradient,
                .rows = joined(result[0], flat(result, 2, result.size())),
                .summed = flat(weight, 1, weight.size()),
                .columns = result[1]},
               1);
}

// self [rows, in], mat2 [groups, in, out]: each row is multiplied with the matrix of its group.
void DimensionRules::grouped_product() {
  const Dimensions self = read("self"), matrices = read("mat2");
  if (self.size() != 2 || matrices.size() != 3 || !is_given("offs") || is_given("bias")) return unknown();
  const std::string why = cat(here(), " chooses by them which matrix multiplies a row");
  for (const auto& dimension : {self[0], matrices[0]}) atoms_.forbid(dimension, why);
  atoms_.unite(self[1], matrices[1]);
  sum_over({self[0], matrices[2]}, matrices[1], "self", "mat2");
}

// One or two tensors, whose dimensions have letters: "bi,io->bo".
void DimensionRules::einsum() {
  const GraphArgument& given = argument("equation");
  if (given.value >= 0 || !given.constant.isString()) return unknown();
  std::string equation = given.constant.toStringRef();
  std::erase(equation, ' ');
  const size_t arrow = equation.find("->"), comma = equation.find(',');
  const int tensors = place_of_argument(call(), "tensors"), count = std::ssize(call().arguments[tensors].items);
  if (arrow == std::string::npos || equation.find('.') != std::string::npos || count < 1 || count > 2) return unknown();
  std::vector<std::string> of_tensors = {equation.substr(0, std::min(comma, arrow))};
  if (count == 2) of_tensors.push_back(equation.substr(comma + 1, arrow - comma - 1));
  const std::string of_result = equation.substr(arrow + 2);
  const auto has = [](const std::string& letters, char letter) { return letters.find(letter) != std::string::npos; };

  std::map<char, Dimension> dimensions;
  int factor = -1;  // the tensor that depends on parameters alone
  for (int i = 0; i < count; ++i) {
    const int value = call().arguments[tensors].items[i].value;
    const Dimensions self = read_at({node_, tensors, i});
    const std::string& letters = of_tensors[i];
    if (value < 0 || self.size() != letters.size()) return unknown();
    for (size_t d = 0; d < letters.size(); ++d) {
      if (letters.find(letters[d]) != d) return unknown();  // a diagonal
      Dimension& known = dimensions[letters[d]];
      if (known.empty())
        known = self[d];
      else if (!self[d].empty())
        atoms_.unite(known, self[d]);
    }
    if (!weight_[value].empty()) factor = i;
  }
  Dimensions result;
  for (const char letter : of_result) result.push_back(dimensions[letter]);
  Dimension summed, rows, columns;
  double flops = 2;
  for (const auto& [letter, dimension] : dimensions) {
    flops *= size_of(dimension);
    const bool is_of_both = count == 2 && has(of_tensors[0], letter) && has(of_tensors[1], letter);
    if (has(of_result, letter)) {
      Dimension& part = factor >= 0 && !is_of_both && has(of_tensors[factor], letter) ? columns : rows;
      part = joined(part, dimension);
    } else if (factor >= 0 && is_of_both) {
      summed = joined(summed, dimension);
    } else {
      atoms_.forbid(dimension,
                    cat(here(), is_of_both ? " sums over them in a product of two activations" : " needs all of them"));
    }
  }
  if (count == 2) found_.summed[node_] = summed;
  if (count == 2 && factor >= 0) {
    const int other = call().arguments[tensors].items[1 - factor].value;
    found_.products.push_back({.node = node_,
                               .parameter = weight_[call().arguments[tensors].items[factor].value],
                               .flops = flops,
                               .has_input_gradient = found_.of_value.contains(other),
                               .rows = rows,
                               .summed = summed,
                               .columns = columns});
  }
  make(result);
}

}  // namespace shardline
