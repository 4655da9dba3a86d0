#include "models/program/trace/size_formula.h"

#include <utility>

#include "core/error.h"

namespace shardline {

int64_t SizeFormula::at(const BatchSize& size) const {
  return fixed + by_batch * size.batch + by_length * size.length + by_target * size.target +
         by_rows * size.batch * size.length + by_target_rows * size.batch * size.target;
}

std::string SizeFormula::text() const {
  std::string text;
  for (const auto& [factor, what] : {std::pair(by_rows, "batch * length"),
                                     {by_target_rows, "batch * target"},
                                     {by_batch, "batch"},
                                     {by_length, "length"},
                                     {by_target, "target"},
                                     {fixed, ""}}) {
    if (factor == 0) continue;
    if (!text.empty()) text += " + ";
    if (*what == 0 || factor != 1) text += std::to_string(factor);
    if (*what != 0) text += cat(factor != 1 ? " * " : "", what);
  }
  return text.empty() ? "0" : text;
}

std::optional<SizeFormula> formula_of(const std::vector<BatchSize>& sizes, const std::vector<int64_t>& numbers) {
  SL_ASSERT(sizes.size() >= kTracedSizes.size() && sizes.size() == numbers.size(), sizes.size());
  const auto& [small, more_samples, longer, more_rows, longer_target, more_target_rows, check] = kTracedSizes;
  const int64_t samples = more_samples.batch - small.batch, tokens = longer.length - small.length,
                of_target = longer_target.target - small.target;
  SizeFormula formula;
  formula.by_rows = (numbers[3] - numbers[2] - numbers[1] + numbers[0]) / (samples * tokens);
  formula.by_target_rows = (numbers[5] - numbers[4] - numbers[1] + numbers[0]) / (samples * of_target);
  formula.by_batch =
      (numbers[1] - numbers[0]) / samples - formula.by_rows * small.length - formula.by_target_rows * small.target;
  formula.by_length = (numbers[2] - numbers[0]) / tokens - formula.by_rows * small.batch;
  formula.by_target = (numbers[4] - numbers[0]) / of_target - formula.by_target_rows * small.batch;
  formula.fixed = numbers[0] - formula.at(small);
  for (size_t i = 0; i < numbers.size(); ++i)
    if (formula.at(sizes[i]) != numbers[i]) return {};
  return formula;
}

}  // namespace shardline
