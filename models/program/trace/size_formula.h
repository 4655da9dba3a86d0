// Numbers that follow from the sizes of a batch, found from their values at a few sizes.
#pragma once
#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>

namespace shardline {

struct BatchSize {
  int64_t batch, length;
};

// The sizes at which a program is traced. The first four determine a formula, and the last one checks it.
inline constexpr std::array<BatchSize, 5> kTracedSizes = {{{3, 5}, {4, 5}, {3, 8}, {4, 8}, {6, 7}}};
using TracedNumbers = std::array<int64_t, kTracedSizes.size()>;

// fixed + by_batch * batch + by_length * length + by_both * batch * length
struct SizeFormula {
  int64_t fixed = 0, by_batch = 0, by_length = 0, by_both = 0;
  auto operator<=>(const SizeFormula&) const = default;

  bool is_fixed() const { return by_batch == 0 && by_length == 0 && by_both == 0; }
  int64_t at(const BatchSize& size) const;
  std::string text() const;  // "2 * batch + length"
};

// Nothing if no formula gives these numbers.
std::optional<SizeFormula> formula_of(const TracedNumbers& numbers);

}  // namespace shardline
