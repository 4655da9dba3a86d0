#include "models/program/trace/size_formula.h"

#include <utility>

#include "core/error.h"

namespace shardline {

int64_t SizeFormula::at(const BatchSize& size) const {
  return fixed + by_batch * size.batch + by_length * size.length + by_both * size.batch * size.length;
}

std::string SizeFormula::text() const {
  std::string text;
  for (const auto& [factor, what] :
       {std::pair(by_both, "batch * length"), {by_batch, "batch"}, {by_length, "length"}, {fixed, ""}}) {
    if (factor == 0) continue;
    if (!text.empty()) text += " + ";
    if (*what == 0 || factor != 1) text += std::to_string(factor);
    if (*what != 0) text += cat(factor != 1 ? " * " : "", what);
  }
  return text.empty() ? "0" : text;
}

std::optional<SizeFormula> formula_of(const TracedNumbers& numbers) {
  const auto& [small, more_samples, longer, both, check] = kTracedSizes;
  const int64_t samples = more_samples.batch - small.batch, tokens = longer.length - small.length;
  SizeFormula formula;
  formula.by_both = (numbers[3] - numbers[2] - numbers[1] + numbers[0]) / (samples * tokens);
  formula.by_batch = (numbers[1] - numbers[0]) / samples - formula.by_both * small.length;
  formula.by_length = (numbers[2] - numbers[0]) / tokens - formula.by_both * small.batch;
  formula.fixed = numbers[0] - SizeFormula{0, formula.by_batch, formula.by_length, formula.by_both}.at(small);
  for (size_t i = 0; i < numbers.size(); ++i)
    if (formula.at(kTracedSizes[i]) != numbers[i]) return {};
  return formula;
}

}  // namespace shardline
