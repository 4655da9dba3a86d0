#include "engine/data/text/utf8.h"

#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <cstdint>

namespace shardline {
namespace {

const uint8_t* unsigned_bytes(std::string_view bytes) {
  return reinterpret_cast<const uint8_t*>(bytes.data());
}

}  // namespace

bool is_valid_utf8(std::string_view bytes) {
  const uint8_t* data = unsigned_bytes(bytes);
  const int64_t size = bytes.size();
  for (int64_t offset = 0; offset < size;) {
    if (data[offset] < 0x80) {
      ++offset;
      continue;
    }
    UChar32 code_point = 0;
    U8_NEXT(data, offset, size, code_point);
    if (code_point < 0) return false;
  }
  return true;
}

std::string replace_invalid_utf8(std::string_view bytes, std::vector<Utf8Repair>* repairs) {
  const uint8_t* data = unsigned_bytes(bytes);
  const int64_t size = bytes.size();
  std::string out;
  out.reserve(bytes.size());
  for (int64_t offset = 0; offset < size;) {
    const int64_t start = offset;
    UChar32 code_point = 0;
    U8_NEXT(data, offset, size, code_point);
    if (code_point < 0) {
      append_utf8(out, 0xFFFD);
      if (repairs) repairs->push_back({size_t(offset), out.size()});
    } else {
      out.append(bytes.substr(start, offset - start));
    }
  }
  return out;
}

size_t code_point_start(std::string_view bytes, size_t offset) {
  const uint8_t* data = unsigned_bytes(bytes);
  for (size_t back = 1; back <= 3 && back <= offset && offset < bytes.size(); ++back) {
    if (U8_IS_TRAIL(data[offset - back])) continue;
    // The part that begins there may extend beyond `offset`.
    size_t end = offset - back;
    next_code_point(bytes, end);
    return end > offset ? offset - back : offset;
  }
  return offset;
}

void append_utf8(std::string& out, char32_t code_point) {
  uint8_t buffer[U8_MAX_LENGTH];
  int length = 0;
  U8_APPEND_UNSAFE(buffer, length, code_point);
  out.append(buffer, buffer + length);
}

char32_t next_code_point(std::string_view bytes, size_t& offset) {
  const uint8_t* data = unsigned_bytes(bytes);
  UChar32 code_point = 0;
  U8_NEXT_OR_FFFD(data, offset, bytes.size(), code_point);
  return code_point;
}

char32_t previous_code_point(std::string_view bytes, size_t& end) {
  const uint8_t* data = unsigned_bytes(bytes);
  // The macro looks back at most four bytes, with 32-bit places.
  const size_t from = end > U8_MAX_LENGTH ? end - U8_MAX_LENGTH : 0;
  int32_t place = end - from;
  UChar32 code_point = 0;
  U8_PREV_OR_FFFD(data + from, 0, place, code_point);
  end = from + place;
  return code_point;
}

bool is_white_space(char32_t code_point) {
  return u_isUWhiteSpace(code_point);
}

}  // namespace shardline
