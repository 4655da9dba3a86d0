// Converts text to token ids and back: streams of text for language models, and examples of one or two texts with
// special tokens and places in the text. Implementations: byte-level BPE (bpe_tokenizer.h), all other tokenizers of
// files (pipeline_tokenizer.h), and `bytes` (ids 0..255, no file).
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/data/tokenizer/special_tokens.h"
#include "engine/data/tokenizer/steps/encoding.h"

namespace shardline {

// A place in a text where its encoding can stop and continue later.
struct Seam {
  size_t offset = 0;  // the byte of the text, at the beginning of a code point
  std::string state;  // what the following ids depend on besides the following text; empty: as if the text began here
  bool operator==(const Seam&) const = default;
};

struct EncodedPart {
  struct Listed {
    Seam seam;
    size_t ids = 0;  // the number of the part's ids before the seam
  };
  std::vector<int32_t> ids;
  Seam end;
  std::vector<Listed> listed;  // ascending
};

struct PartOptions {
  size_t until = SIZE_MAX;                   // the part ends at a seam here or soon after, or where the text ends
  size_t listed_from = 0, listed_until = 0;  // all seams at these bytes are listed
  size_t window = size_t{1} << 16;           // bytes that are processed together, more if these contain no seam
  int threads = 1;                           // threads for what follows the split into words
};

// Immutable after loading; all functions may be called from several threads at the same time.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Adds no special tokens around the text; added tokens that are written in the text become their ids. Invalid UTF-8
  // is read as Python's errors="replace" reads it (`bytes` accepts any byte).
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  // Returns the ids of `text` from a seam on, in memory that does not grow with the text (but contains whole matches of
  // a split pattern). Consecutive parts, each from where the previous one ended, together have the ids of the whole
  // text. Equal seams are followed by equal ids, however they were reached. So the work of a thread that begins
  // anywhere is proven right from the first seam on that it has in common with the previous part. Tokenizers other than
  // byte-level BPE have seams between lines if white space separates their words; otherwise they take a text as a
  // whole, and throw DataError if it has more than AlignedText::kLongest bytes.
  virtual EncodedPart encode_part(std::string_view text, const Seam& from, const PartOptions& options) const = 0;
  // Returns what a model reads for one text or a pair: tokens, with special tokens around them and in between, cut to
  // options.max_length. One encoding, or with options.windows as many as the whole text needs. Equal to the reference
  // library's, with offsets in bytes. Throws DataError if a text cannot be cut in the requested way.
  virtual std::vector<Encoding> encode_example(const TextOrWords& first, const TextOrWords* second,
                                               const ExampleOptions& options) const = 0;
  // Returns valid UTF-8: bytes that are not valid become U+FFFD. Special tokens are written out; ids without a token
  // are skipped.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  // A token as the vocabulary writes it, "##ing"; empty for an id without a token.
  virtual std::string token(int32_t id) const = 0;
  // The id of a token that is written like this in the vocabulary, if there is one.
  virtual std::optional<int32_t> id(std::string_view token) const = 0;
  // The text of these tokens; decode() returns the same for the tokens of the ids.
  virtual std::string joined(std::vector<std::string> tokens) const = 0;
  // Whether tokens that continue a word have a prefix that marks them, as those of WordPiece do.
  virtual bool marks_continuations() const = 0;
  // Whether a token is special, i.e. represents no text of the user, such as [SEP] or <|endoftext|>.
  virtual bool is_special(int32_t id) const = 0;
  // One more than the largest id.
  virtual int64_t vocab_size() const = 0;
  // The id of the token with this role, if there is one.
  virtual std::optional<int32_t> special(SpecialToken role) const = 0;
  std::optional<int32_t> eos() const { return special(SpecialToken::eos); }
  // Changes when the files that define the ids change.
  virtual const std::string& digest() const = 0;
};
using TokenizerPtr = std::shared_ptr<const Tokenizer>;

// `source` is "bytes", a tokenizer.json, or a folder with tokenizer.json, with vocab.json and merges.txt, with
// vocab.txt or with a SentencePiece model. Tokens with a role are those that tokenizer_config.json or
// special_tokens_map.json next to it names, otherwise those with usual names. Padding and truncation that a file asks
// for are ignored, apart from the side that truncation cuts: batches and ExampleOptions decide. Types of tokens are 0
// if transformers would pass none to the model. Throws DataError for anything whose ids would differ from those
// of the reference library.
TokenizerPtr load_tokenizer(const std::string& source);
// Whether a folder has files from which load_tokenizer can make a tokenizer.
bool has_tokenizer(const std::string& folder);

}  // namespace shardline
