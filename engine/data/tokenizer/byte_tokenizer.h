// `bytes`: each byte is its own id.
#pragma once
#include <map>
#include <string>

#include "engine/data/tokenizer/tokenizer.h"

namespace shardline {

class ByteTokenizer final : public Tokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text) const override;
  EncodedPart encode_part(std::string_view text, const Seam& from, const PartOptions& options) const override;
  // Each byte is a word.
  std::vector<Encoding> encode_example(const TextOrWords& first, const TextOrWords* second,
                                       const ExampleOptions& options) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  std::string token(int32_t id) const override;
  std::optional<int32_t> id(std::string_view token) const override;
  std::string joined(std::vector<std::string> tokens) const override;
  bool marks_continuations() const override { return false; }
  bool is_special(int32_t) const override { return false; }
  int64_t vocab_size() const override { return 256; }
  std::optional<int32_t> special(SpecialToken) const override { return std::nullopt; }
  const std::string& digest() const override;
};

// File contents by name: a tokenizer.json and a tokenizer_config.json that give valid UTF-8 the same ids here and in
// transformers.
std::map<std::string, std::string> byte_tokenizer_files();

}  // namespace shardline
