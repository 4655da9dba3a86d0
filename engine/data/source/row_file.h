// Tables in the usual formats, read row by row: JSON Lines, JSON, CSV and TSV files, and lines of text.
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/error.h"
#include "engine/data/source/data_files.h"

namespace shardline {

// A row's columns by name, an object; CSV and TSV files have texts only.
struct DataRow {
  nlohmann::json columns;
  std::string where;         // "FILE:LINE", or "FILE, row N" in a JSON array
  bool is_cut_off = false;   // has fewer fields than its file has columns, see DataFile::uneven
  bool is_headless = false;  // the first row of its file names no columns, see DataFile::columns
};

class RowFile {
 public:
  virtual ~RowFile() = default;
  // The next row; false at the end of the file. Throws DataError for a row that cannot be read.
  virtual bool next(DataRow& row) = 0;
  // Bytes of the file that have been read.
  virtual size_t done() const = 0;
};

// jsonl: each line that is not blank is an object. csv: fields as RFC 4180 has them, in quotes where they contain
// commas, quotes (doubled) or line ends. tsv: fields between tabs; quotes are ordinary characters. The first row of
// both names the columns. json: an array of objects, or an object whose "data" is one, as SQuAD has it (its paragraphs
// become rows with id, title, context, question, answers); a file with one object per line is read as jsonl. text: each
// line, also a blank one, is a row whose only column is "text". conll: each line has a word and its annotations,
// separated by white space; blank lines and -DOCSTART- separate sentences. A sentence is a row, whose columns "0", "1",
// ... are lists; the first is also called "tokens", and the last of several "label". Throws DataError, also for tokens,
// which have no columns.
std::unique_ptr<RowFile> open_rows(const DataFile& file);

// A row has no column of the name that a key of the config gives.
struct MissingColumn : DataError {
  using DataError::DataError;
};

// Calls `read`, which reads the first row of a file: that this row has no such column is the config's mistake.
template <class Read>
void read_first_row(const Read& read) try {
  read();
} catch (const MissingColumn& error) {
  throw ConfigError(cat("/data: ", error.what()));
}

// The value in a column. Throws MissingColumn, which shows the columns that there are and the key of the config that
// names the column ("data.text_column"); or DataError if `key` is no key, but says what to set.
const nlohmann::json& column_of(const DataRow& row, const std::string& column, const std::string& key);
// The same, which must be a text.
const std::string& text_of(const DataRow& row, const std::string& column, const std::string& key);

}  // namespace shardline
