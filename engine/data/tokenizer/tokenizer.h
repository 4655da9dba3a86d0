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

// A place in a text where its encoding can stop and continue later.
struct Seam {
  size_t offset = 0;  // byte of the text, where a code point begins
  std::string state;  // what the ids from here on depend on besides the text from here on; empty: as if it began here
  bool operator==(const Seam&) const = default;
};

struct EncodedPart {
  struct Listed {
    Seam seam;
    size_t ids = 0;  // of the part, before the seam
  };
  std::vector<int32_t> ids;
  Seam end;
  std::vector<Listed> listed;  // ascending
};

struct PartOptions {
  size_t until = SIZE_MAX;                   // the part ends at a seam here or soon after, or where the text ends
  size_t listed_from = 0, listed_until = 0;  // all seams at these bytes are listed
  size_t window = size_t{1} << 16;           // bytes that are looked at together, more where these have no seam
  int threads = 1;                           // for what follows the split into words
};

// Immutable after loading; every function may be called from several threads at the same time.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // No special tokens are added around the text; added tokens written in the text become their ids. Invalid UTF-8 is
  // read as Python's errors="replace" reads it (`bytes` takes any byte as it is).
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  // The ids of `text` from a seam on, in memory that does not grow with the text (but holds whole matches of a split
  // pattern). Parts that go on where the one before ended have the ids of the whole text. Equal seams, however they
  // were reached, are followed by equal ids: so a thread that begins anywhere is proven right from the first seam on
  // that it has in common with the part before.
  virtual EncodedPart encode_part(std::string_view text, const Seam& from, const PartOptions& options) const = 0;
  // Valid UTF-8: bytes that form none become U+FFFD. Special tokens are written out; ids without a token give nothing.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  // One more than the largest id.
  virtual int64_t vocab_size() const = 0;
  virtual std::optional<int32_t> eos() const = 0;
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
