// Text to token ids and back. Siblings: byte-level BPE (bpe_tokenizer.h) and `bytes` (ids 0..255, no file).
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shardline {

// Immutable after loading; every function may be called from several threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // No special tokens are added around the text; added tokens written in the text become their ids. Invalid UTF-8 is
  // read as Python's errors="replace" reads it (`bytes` takes any byte as it is).
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  // Valid UTF-8: bytes that form none become U+FFFD. Special tokens are written out; ids without a token give nothing.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  // One more than the largest id.
  virtual int64_t vocab_size() const = 0;
  virtual std::optional<int32_t> eos() const = 0;

  // The first place >= from where text may be cut so that the ids of both parts, one after the other, are the ids of
  // the whole; text.size() when none is known. Lets large documents be encoded in parallel.
  virtual size_t safe_cut(std::string_view text, size_t from) const = 0;
  // Changes when the files that define the ids change.
  virtual const std::string& digest() const = 0;
};
using TokenizerPtr = std::shared_ptr<const Tokenizer>;

// `source`: "bytes", a tokenizer.json, or a folder with tokenizer.json or with vocab.json and merges.txt. The token
// that ends a text is read from tokenizer_config.json or special_tokens_map.json beside it, else it is <|endoftext|>
// where the vocabulary has that. Padding, truncation and post-processors that add tokens around a text are left out:
// blocks of a token stream have none. DataError for anything that would give other ids than the reference library.
TokenizerPtr load_tokenizer(const std::string& source);

}  // namespace shardline
