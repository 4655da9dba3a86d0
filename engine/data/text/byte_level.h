// GPT-2's byte-level alphabet, in which vocabularies and merges are written. Every byte has one printable character
// (U+0120 followed by "the" is " the"): printable Latin-1 bytes represent themselves, the other 68 are U+0100, U+0101,
// ...
#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace shardline {

// The characters of bytes 0..255, as UTF-8.
const std::array<std::string, 256>& byte_level_alphabet();

// The bytes that a vocabulary entry represents; nothing if it has a character outside the alphabet or invalid UTF-8.
std::optional<std::string> bytes_of_byte_level(std::string_view token);

}  // namespace shardline
