// One data file as pieces that become token ids independently, so that threads can share the work, and that are joined
// in order afterwards.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "engine/data/source/data_files.h"
#include "engine/data/tokenizer/tokenizer.h"

namespace shardline {

using TokenIds = std::vector<int32_t>;

// The ids of a file are its documents one after the other with nothing between.
class DataSource {
 public:
  virtual ~DataSource() = default;
  virtual int64_t documents() const = 0;
  virtual int64_t pieces() const = 0;
  virtual int64_t piece_bytes(int64_t piece) const = 0;
  // Any pieces, in any order, on several threads at the same time. What precedes the piece is only guessed.
  virtual EncodedPart encode(int64_t piece) const = 0;
  // The ids of the file that follow those of the pieces before `piece`: called for each piece in order. `border` is
  // where the pieces so far ended, at first Seam{}; this moves it on.
  virtual TokenIds join(int64_t piece, EncodedPart part, Seam& border) const = 0;
};

struct DataSourceOptions {
  TokenizerPtr tokenizer;            // may be null when all files hold tokens
  int64_t vocab_size = 0;            // ids of token files must be below
  std::string text_column = "text";  // of JSONL
  int64_t piece_bytes = 1 << 20;
  int threads = 1;                          // of join()
  std::function<void()> scanned = nullptr;  // called now and then while opening a source reads its file
};

// text: the whole file is one document, line ends kept as they are; a NUL byte is a DataError.
// jsonl: each line that is not blank is an object with a string in text_column, one document; DataError with the line.
// tokens: see token_file.h.
std::unique_ptr<DataSource> open_data_source(const DataFile& file, const DataSourceOptions& options);
// What it throws for text without a tokenizer.
ConfigError missing_tokenizer(const DataFile& text);

}  // namespace shardline
