// Byte-level BPE as the `tokenizers` library does it: added tokens, NFC, split patterns, byte-pair merges.
#pragma once
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/data/added_tokens.h"
#include "engine/data/bpe_model.h"
#include "engine/data/split_pattern.h"
#include "engine/data/tokenizer.h"

namespace shardline {

struct SplitStep {
  std::string pattern;  // Oniguruma's dialect, as in the file
  SplitPattern::Keep keep = SplitPattern::Keep::all;
};

// The pattern of GPT-2, which a ByteLevel pre-tokenizer with use_regex stands for.
extern const char* const kGpt2Pattern;

struct BpeTokenizerSpec {
  BpeVocabulary vocabulary;
  std::vector<AddedToken> added;
  bool nfc = false;
  std::vector<SplitStep> splits;   // before the byte level, in order
  bool add_prefix_space = false;   // to every piece that the splits left
  bool byte_level_pattern = true;  // then kGpt2Pattern
  std::optional<std::string> eos;  // content of the token
  std::string digest;
};

class BpeTokenizer final : public Tokenizer {
 public:
  // DataError when the parts contradict each other.
  explicit BpeTokenizer(const BpeTokenizerSpec& spec);

  std::vector<int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  int64_t vocab_size() const override { return vocab_size_; }
  std::optional<int32_t> eos() const override { return eos_; }
  size_t safe_cut(std::string_view text, size_t from) const override;
  const std::string& digest() const override { return digest_; }

 private:
  void encode_piece(std::string_view text, size_t step, std::vector<int32_t>& ids) const;
  void encode_byte_level(std::string_view text, std::vector<int32_t>& ids) const;

  BpeModel model_;
  AddedTokenMatcher raw_added_;
  AddedTokenMatcher normalized_added_;
  bool nfc_;
  std::vector<SplitPattern> splits_;
  bool add_prefix_space_;
  std::optional<SplitPattern> byte_level_split_;
  std::unordered_map<int32_t, std::string> bytes_of_id_;
  int64_t vocab_size_ = 0;
  std::optional<int32_t> eos_;
  bool cuts_at_lines_ = false;  // a line end alone between other characters parts words
  std::string digest_;
};

}  // namespace shardline
