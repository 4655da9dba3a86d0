// The byte-level alphabet of GPT-2: every byte has one printable character, in which vocabularies and merges are
// written (U+0120 followed by "the" is " the"). Printable Latin-1 bytes stand for themselves, the other 68 for U+0100,
// U+0101, ...
#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace shardline {

// The characters of bytes 0..255, as UTF-8.
const std::array<std::string, 256>& byte_level_alphabet();

// The bytes that a vocabulary entry stands for; nothing when it has a character outside the alphabet or bad UTF-8.
std::optional<std::string> bytes_of_byte_level(std::string_view token);

}  // namespace shardline
