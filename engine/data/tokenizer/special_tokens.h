// Tokens with a role in a model's input.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

namespace shardline {

enum class SpecialToken { pad, cls, sep, mask, unk, bos, eos };

// The ids by role; unset if the tokenizer has no such token.
class SpecialTokens {
 public:
  std::optional<int32_t> operator[](SpecialToken role) const { return ids_[static_cast<size_t>(role)]; }
  void set(SpecialToken role, int32_t id) { ids_[static_cast<size_t>(role)] = id; }
  bool contain(int32_t id) const { return std::ranges::find(ids_, std::optional(id)) != ids_.end(); }

 private:
  std::array<std::optional<int32_t>, 7> ids_;
};

}  // namespace shardline
