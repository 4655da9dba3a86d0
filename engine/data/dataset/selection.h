// Some of the numbers 0, 1, ..., such as the rows that are held out for validation.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace shardline {

// The numbers are in ascending order. Copies share the list, if there is one.
class Selection {
 public:
  Selection() = default;
  Selection(int64_t first, int64_t count) : first_(first), count_(count) {}  // consecutive numbers
  explicit Selection(std::vector<uint32_t> ascending);

  int64_t size() const { return count_; }
  int64_t operator[](int64_t i) const { return list_ ? (*list_)[i] : first_ + i; }

  // {`count` of them, the others}: the first ones or, with a seed, random ones, which depend on the seed and size().
  std::pair<Selection, Selection> divided(int64_t count, std::optional<uint64_t> seed) const;
  // The first part that `divided` returns; everything if size() <= count.
  Selection at_most(int64_t count, std::optional<uint64_t> seed) const;
  // Equal for equal selections: "from 3 on", or a digest of the list.
  std::string describe() const;

 private:
  int64_t first_ = 0, count_ = 0;
  std::shared_ptr<const std::vector<uint32_t>> list_;  // null: consecutive numbers
};

// How many of these units are held out for validation: this percentage, rounded. Throws DataError if that is none or
// all of them.
int64_t count_held_out(int64_t units, double percentage);

}  // namespace shardline
