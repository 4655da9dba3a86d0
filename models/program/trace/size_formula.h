// Numbers that depend on the sizes of a batch, derived from their values at a few sizes.
#pragma once
#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shardline {

// target: the length of targets, for programs that have them.
struct BatchSize {
  int64_t batch, length, target;
};

// The sizes at which every program is traced. The first six determine a formula; the last one and further sizes verify
// it.
inline constexpr std::array<BatchSize, 7> kTracedSizes = {
    {{3, 5, 4}, {4, 5, 4}, {3, 8, 4}, {4, 8, 4}, {3, 5, 6}, {4, 5, 6}, {6, 7, 3}}};

// fixed + by_batch * batch + by_length * length + by_target * target + by_rows * batch * length
//   + by_target_rows * batch * target
struct SizeFormula {
  int64_t fixed = 0, by_batch = 0, by_length = 0, by_target = 0, by_rows = 0, by_target_rows = 0;
  auto operator<=>(const SizeFormula&) const = default;

  bool is_fixed() const { return *this == SizeFormula{.fixed = fixed}; }
  int64_t at(const BatchSize& size) const;
  std::string text() const;  // "2 * batch + length"
};

// Finds the formula for numbers at each of these sizes, which begin with kTracedSizes. Nothing if none fits.
std::optional<SizeFormula> formula_of(const std::vector<BatchSize>& sizes, const std::vector<int64_t>& numbers);

}  // namespace shardline
