// The tokens <0x00> to <0xFF>, which stand for bytes of text that has no other tokens.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace shardline {

constexpr int32_t kNoByteToken = -1;

// The ids by byte; kNoByteToken if the vocabulary has no such token.
std::array<int32_t, 256> byte_token_ids(const std::unordered_map<std::string, int32_t>& ids);

bool has_all_bytes(const std::array<int32_t, 256>& ids, std::string_view text);

// The byte that a token stands for.
std::optional<char> byte_of_token(std::string_view token);

}  // namespace shardline
