// Byte-level BPE as the `tokenizers` library does it: words, then byte-pair merges.
#pragma once
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/data/tokenizer/bpe_model.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "engine/data/tokenizer/word_splitter.h"

namespace shardline {

struct BpeTokenizerSpec {
  BpeVocabulary vocabulary;
  WordRules words;
  std::optional<std::string> eos;  // the token's content
  std::string digest;
};

class BpeTokenizer final : public Tokenizer {
 public:
  // Throws DataError if the parts contradict each other.
  explicit BpeTokenizer(const BpeTokenizerSpec& spec);
  BpeTokenizer(const BpeTokenizer&) = delete;
  BpeTokenizer& operator=(const BpeTokenizer&) = delete;

  std::vector<int32_t> encode(std::string_view text) const override;
  EncodedPart encode_part(std::string_view text, const Seam& from, const PartOptions& options) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  int64_t vocab_size() const override { return vocab_size_; }
  std::optional<int32_t> eos() const override { return eos_; }
  const std::string& digest() const override { return digest_; }

 private:
  void append_ids(std::span<const Word> words, int threads, std::vector<int32_t>& ids) const;

  BpeModel model_;
  WordSplitter splitter_;
  std::unordered_map<int32_t, std::string> bytes_of_id_;
  int64_t vocab_size_ = 0;
  std::optional<int32_t> eos_;
  std::string digest_;
};

}  // namespace shardline
