#include "engine/data/text/byte_level.h"

#include <unordered_map>

#include "engine/data/text/utf8.h"

namespace shardline {
namespace {

std::array<char32_t, 256> code_points_of_bytes() {
  std::array<char32_t, 256> table{};
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    table[byte] = printable ? byte : next++;
  }
  return table;
}

}  // namespace

const std::array<std::string, 256>& byte_level_alphabet() {
  static const std::array<std::string, 256> alphabet = [] {
    std::array<std::string, 256> table;
    const auto code_points = code_points_of_bytes();
    for (int byte = 0; byte < 256; ++byte) append_utf8(table[byte], code_points[byte]);
    return table;
  }();
  return alphabet;
}

std::optional<std::string> bytes_of_byte_level(std::string_view token) {
  static const std::unordered_map<char32_t, char> byte_of = [] {
    std::unordered_map<char32_t, char> table;
    const auto code_points = code_points_of_bytes();
    for (int byte = 0; byte < 256; ++byte) table[code_points[byte]] = byte;
    return table;
  }();
  if (!is_valid_utf8(token)) return std::nullopt;
  std::string bytes;
  for (size_t offset = 0; offset < token.size();) {
    const auto found = byte_of.find(next_code_point(token, offset));
    if (found == byte_of.end()) return std::nullopt;
    bytes += found->second;
  }
  return bytes;
}

}  // namespace shardline
