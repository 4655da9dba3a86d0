// The places of a text's characters, which Python counts.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace shardline {

class CharacterPlaces {
 public:
  explicit CharacterPlaces(std::string_view text);
  int64_t of_byte(size_t byte) const { return before_[byte]; }  // characters before it; byte <= text.size()

 private:
  std::vector<int64_t> before_;
};

}  // namespace shardline
