#include "engine/data/byte_tokenizer.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "engine/data/byte_level.h"
#include "engine/data/utf8.h"

namespace shardline {
namespace {

void write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream out(path);
  out << text << '\n';
  if (!out.flush()) throw RunError(cat("cannot write ", path.string(), ": ", std::strerror(errno)));
}

}  // namespace

std::vector<int32_t> ByteTokenizer::encode(std::string_view text) const {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  return {bytes, bytes + text.size()};
}

// Every byte is a seam.
EncodedPart ByteTokenizer::encode_part(std::string_view text, const Seam& from, const PartOptions& options) const {
  const size_t end = std::clamp(options.until, from.at, text.size());
  EncodedPart part{.ids = encode(text.substr(from.at, end - from.at)), .end = {.at = end}};
  for (size_t at = std::max(from.at, options.listed_from); at <= end && at < options.listed_until; ++at) {
    part.listed.push_back({{.at = at}, at - from.at});
  }
  return part;
}

std::string ByteTokenizer::decode(std::span<const int32_t> ids) const {
  std::string bytes;
  for (const int32_t id : ids) {
    if (id >= 0 && id < 256) bytes += static_cast<char>(id);
  }
  return replace_invalid_utf8(bytes);
}

const std::string& ByteTokenizer::digest() const {
  static const std::string name = "bytes";
  return name;
}

void write_byte_tokenizer(const std::filesystem::path& folder) {
  nlohmann::json vocab;
  for (size_t byte = 0; byte < 256; ++byte) vocab[byte_level_alphabet()[byte]] = byte;
  const nlohmann::json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  const nlohmann::json model = {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}};
  write_file(folder / "tokenizer.json", nlohmann::json{{"version", "1.0"},
                                                       {"added_tokens", nlohmann::json::array()},
                                                       {"pre_tokenizer", byte_level},
                                                       {"decoder", byte_level},
                                                       {"model", model}}
                                            .dump());
  write_file(
      folder / "tokenizer_config.json",
      nlohmann::json{{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}}.dump());
}

}  // namespace shardline
