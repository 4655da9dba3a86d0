#include "engine/data/tokenizer/byte_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/data/text/byte_level.h"
#include "engine/data/text/utf8.h"
#include "engine/data/tokenizer/steps/decoder.h"
#include "engine/data/tokenizer/steps/post_processor.h"

namespace shardline {
namespace {

Encoding bytes_of(const TextOrWords& source) {
  Encoding out;
  const auto append = [&](std::string_view text, int32_t word) {
    for (uint32_t i = 0; i < text.size(); ++i) {
      const unsigned char byte = text[i];
      out.ids.push_back(byte);
      out.types.push_back(0);
      out.offsets.push_back({i, i + 1});
      out.sequences.push_back(0);
      out.words.push_back(word == Encoding::kNone ? i : word);
    }
  };
  if (const auto* text = std::get_if<std::string_view>(&source)) {
    append(*text, Encoding::kNone);
    return out;
  }
  int32_t word = 0;
  for (const std::string& text : std::get<std::span<const std::string>>(source)) append(text, word++);
  return out;
}

}  // namespace

std::vector<int32_t> ByteTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids(text.size());
  std::transform(text.begin(), text.end(), ids.begin(), [](unsigned char byte) { return byte; });
  return ids;
}

// Every byte is a seam.
EncodedPart ByteTokenizer::encode_part(std::string_view text, const Seam& from, const PartOptions& options) const {
  const size_t end = std::clamp(options.until, from.offset, text.size());
  EncodedPart part{.ids = encode(text.substr(from.offset, end - from.offset)), .end = {.offset = end}};
  for (size_t offset = std::max(from.offset, options.listed_from); offset <= end && offset < options.listed_until;
       ++offset) {
    part.listed.push_back({{.offset = offset}, offset - from.offset});
  }
  return part;
}

std::vector<Encoding> ByteTokenizer::encode_example(const TextOrWords& first, const TextOrWords* second,
                                                    const ExampleOptions& options) const {
  ExampleTexts texts{.first = {first, bytes_of(first)}, .second = {}};
  if (second) texts.second = {*second, bytes_of(*second)};
  return finish_example(std::move(texts), {}, options, [](int32_t, std::string_view) { return TokenSpace(); });
}

std::string ByteTokenizer::decode(std::span<const int32_t> ids) const {
  std::string bytes;
  for (const int32_t id : ids) {
    if (id >= 0 && id < 256) bytes += id;
  }
  return replace_invalid_utf8(bytes);
}

// The names of tokens are those in byte_tokenizer_files.
std::string ByteTokenizer::token(int32_t id) const {
  return id >= 0 && id < 256 ? byte_level_alphabet()[id] : "";
}

std::optional<int32_t> ByteTokenizer::id(std::string_view token) const {
  for (int32_t id = 0; id < vocab_size(); ++id)
    if (byte_level_alphabet()[id] == token) return id;
  return {};
}

std::string ByteTokenizer::joined(std::vector<std::string> tokens) const {
  static const Decoder decoder = byte_level_decoder();
  return decoder(std::move(tokens));
}

const std::string& ByteTokenizer::digest() const {
  static const std::string name = "bytes";
  return name;
}

std::map<std::string, std::string> byte_tokenizer_files() {
  nlohmann::json vocab;
  for (size_t byte = 0; byte < 256; ++byte) vocab[byte_level_alphabet()[byte]] = byte;
  const nlohmann::json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  const nlohmann::json model = {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}};
  const nlohmann::json tokenizer = {{"version", "1.0"},
                                    {"added_tokens", nlohmann::json::array()},
                                    {"pre_tokenizer", byte_level},
                                    {"decoder", byte_level},
                                    {"model", model}};
  const nlohmann::json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                                 {"clean_up_tokenization_spaces", false}};
  return {{"tokenizer.json", tokenizer.dump() + "\n"}, {"tokenizer_config.json", config.dump() + "\n"}};
}

}  // namespace shardline
