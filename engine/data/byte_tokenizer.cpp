#include "engine/data/byte_tokenizer.h"

#include <algorithm>

#include "engine/data/utf8.h"

namespace shardline {

std::vector<int32_t> ByteTokenizer::encode(std::string_view text) const {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  return {bytes, bytes + text.size()};
}

std::string ByteTokenizer::decode(std::span<const int32_t> ids) const {
  std::string bytes;
  for (const int32_t id : ids) {
    if (id >= 0 && id < 256) bytes += static_cast<char>(id);
  }
  return replace_invalid_utf8(bytes);
}

size_t ByteTokenizer::safe_cut(std::string_view text, size_t from) const {
  return std::min(from, text.size());
}

const std::string& ByteTokenizer::digest() const {
  static const std::string name = "bytes";
  return name;
}

}  // namespace shardline
