#include "engine/data/tokenizer/steps/byte_tokens.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

namespace shardline {

std::array<int32_t, 256> byte_token_ids(const std::unordered_map<std::string, int32_t>& ids) {
  std::array<int32_t, 256> of_byte{};
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    const auto found = ids.find(name);
    of_byte[byte] = found == ids.end() ? kNoByteToken : found->second;
  }
  return of_byte;
}

bool has_all_bytes(const std::array<int32_t, 256>& ids, std::string_view text) {
  return std::all_of(text.begin(), text.end(), [&](unsigned char byte) { return ids[byte] != kNoByteToken; });
}

std::optional<char> byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
  int byte = 0;
  const char* const digits = token.data() + 3;
  if (std::from_chars(digits, digits + 2, byte, 16).ptr != digits + 2) return std::nullopt;
  return byte;
}

}  // namespace shardline
