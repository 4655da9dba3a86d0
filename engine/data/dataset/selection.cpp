#include "engine/data/dataset/selection.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/error.h"
#include "core/hex.h"
#include "engine/data/dataset/seeded_shuffle.h"

namespace shardline {
namespace {

constexpr uint64_t kPurpose = uint64_t{1} << 63;  // the number of the shuffle: no epoch has it

}  // namespace

Selection::Selection(std::vector<uint32_t> ascending) : count_(std::ssize(ascending)) {
  SL_ASSERT(std::ranges::adjacent_find(ascending, std::ranges::greater_equal()) == ascending.end(), count_,
            " numbers in another order");
  if (count_ == 0) return;
  first_ = ascending.front();
  const bool are_neighbours = ascending.back() - first_ + 1 == count_;
  if (!are_neighbours) list_ = std::make_shared<const std::vector<uint32_t>>(std::move(ascending));
}

std::pair<Selection, Selection> Selection::divided(int64_t count, std::optional<uint64_t> seed) const {
  SL_ASSERT(count >= 0 && count <= count_, count, " of ", count_);
  std::vector<bool> is_chosen(count_);
  if (seed) {
    const auto order = shuffled_numbers(count_, *seed, kPurpose);
    for (int64_t i = 0; i < count; ++i) is_chosen[order[i]] = true;
  } else {
    std::fill_n(is_chosen.begin(), count, true);
  }
  if (!seed && !list_) return {Selection(first_, count), Selection(first_ + count, count_ - count)};
  std::vector<uint32_t> chosen, others;
  for (int64_t i = 0; i < count_; ++i) (is_chosen[i] ? chosen : others).push_back((*this)[i]);
  return {Selection(std::move(chosen)), Selection(std::move(others))};
}

Selection Selection::at_most(int64_t count, std::optional<uint64_t> seed) const {
  return count >= count_ ? *this : divided(count, seed).first;
}

std::string Selection::describe() const {
  if (!list_) return cat("from ", first_, " on");
  return cat("selection ", hex_digits(XXH3_64bits(list_->data(), list_->size() * sizeof(uint32_t))));
}

int64_t count_held_out(int64_t units, double percentage) {
  const int64_t validation = std::llround(units * percentage / 100);
  if (validation >= 1 && validation < units) return validation;
  throw DataError(cat("data.validation_split_percentage: ", percentage, " % of ", units, " samples gives ", validation,
                      " for validation and ", units - validation, " for training; both need at least one"));
}

}  // namespace shardline
