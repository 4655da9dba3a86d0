// Converts text of unknown origin to valid UTF-8.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace shardline {

bool is_valid_utf8(std::string_view bytes);

// The ends of an ill-formed part and of its U+FFFD.
struct Utf8Repair {
  size_t end = 0;
  size_t repaired_end = 0;
};

// Each maximal ill-formed part becomes one U+FFFD, as Python's bytes.decode("utf-8", errors="replace") does. Appends
// the replaced parts to `repairs`.
std::string replace_invalid_utf8(std::string_view bytes, std::vector<Utf8Repair>* repairs = nullptr);

// The last place <= offset where a code point or an ill-formed part begins; offset <= bytes.size().
size_t code_point_start(std::string_view bytes, size_t offset);

// Appends the UTF-8 form of a code point below 0x110000.
void append_utf8(std::string& out, char32_t code_point);

// The code point at bytes[offset]; `offset` is moved past it; U+FFFD for an ill-formed part. offset < bytes.size().
char32_t next_code_point(std::string_view bytes, size_t& offset);

// The code point that ends before bytes[end]; `end` is moved to its first byte; U+FFFD for an ill-formed part. `end`
// must be positive.
char32_t previous_code_point(std::string_view bytes, size_t& end);

// Unicode White_Space.
bool is_white_space(char32_t code_point);

}  // namespace shardline
