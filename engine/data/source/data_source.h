// One data file as pieces that are encoded independently, so that threads can share the work, and joined in order
// afterwards.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "core/error.h"
#include "engine/data/source/data_files.h"
#include "engine/data/source/row_file.h"
#include "engine/data/tokenizer/tokenizer.h"

namespace shardline {

using TokenIds = std::vector<int32_t>;

struct EncodedPiece {
  EncodedPart part;
  // For each document that ends in the part, the number of the part's ids before its end, in ascending order. The end
  // of the file, where the last document ends, may be missing.
  std::vector<int64_t> document_ends;
};

// The ids of a file are those of its documents, one after the other with nothing in between.
class DataSource {
 public:
  virtual ~DataSource() = default;
  virtual int64_t pieces() const = 0;
  virtual int64_t piece_bytes(int64_t piece) const = 0;
  // Encodes a piece; pieces may be encoded in any order and by several threads at the same time. The text before the
  // piece is not read, so its effect on the piece is only guessed.
  virtual EncodedPiece encode(int64_t piece) const = 0;
  // Returns the ids of the file that follow those of the pieces before `piece`. Called for each piece in order.
  // `border` is the end of the pieces so far, initially Seam{}; this call moves it forward. If documents end in the
  // piece, the result is the ids of `part`.
  virtual TokenIds join(int64_t piece, EncodedPart part, Seam& border) const = 0;
};

struct DataSourceOptions {
  TokenizerPtr tokenizer;            // may be null if all files contain tokens
  int64_t vocab_size = 0;            // ids in token files and tokenised rows must be smaller
  std::string text_column = "text";  // in files with columns
  int64_t piece_bytes = 1 << 20;
  int threads = 1;                          // for join()
  std::function<void()> scanned = nullptr;  // called from time to time while a file is read to open a source
};

// The text of a row, or its tokens.
using Document = std::variant<std::string, TokenIds>;
// Throws DataError for a row without either, or with labels that differ from its tokens.
Document document_in(const DataRow& row, const std::string& text_column, int64_t vocab_size);

// text: the whole file is one document, with its line breaks; a NUL byte is a DataError. jsonl: each line that is not
// blank is one document, an object with a string in text_column; a DataError names the line. json, csv, tsv: each row
// is one document, see row_file.h. The document of a tokenised row consists of its tokens, see tokenised_row.h; labels
// that differ from them are a DataError. tokens: see token_file.h. text and jsonl are read from arbitrary positions, so
// they must not be compressed; messages about an uncompressed copy (unpacked_file.h) name the original file.
std::unique_ptr<DataSource> open_data_source(const DataFile& file, const DataSourceOptions& options);
// The error that open_data_source throws for text without a tokenizer.
ConfigError missing_tokenizer(const DataFile& text);

}  // namespace shardline
