// Tables in the usual formats, read row by row: JSON Lines, JSON, CSV and TSV files, lines of text, Parquet and Arrow.
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "engine/data/source/data_files.h"

namespace shardline {

// The names, by number, of the labels in columns that have such numbers.
using LabelNames = std::map<std::string, std::vector<std::string>>;

// A row's columns by name, an object; CSV and TSV files have texts only.
struct DataRow {
  nlohmann::json columns;
  std::string where;         // "FILE:LINE", or "FILE, row N" in a JSON array, Parquet and Arrow
  bool is_cut_off = false;   // has fewer fields than its file has columns, see DataFile::uneven
  bool is_headless = false;  // the first row of its file names no columns, see DataFile::columns
  std::shared_ptr<const LabelNames> label_names = {};  // names stated in the file; null: none
  std::filesystem::path file = {};                     // the row's file, set by for_each_row and first_row
  int64_t tensor_row = -1;                             // the place of the row in a file of tensors; -1: another file
};

class RowFile {
 public:
  virtual ~RowFile() = default;
  // The next row; false at the end of the file. Throws DataError for a row that cannot be read.
  virtual bool next(DataRow& row) = 0;
  // Bytes of the file that have been read.
  virtual size_t done() const = 0;
};

// jsonl: each line that is not blank is an object. csv: fields as in RFC 4180, in quotes if they contain commas, quotes
// (doubled) or line breaks. tsv: fields between tabs; quotes are ordinary characters. The first row of both names the
// columns. json: an array of objects, or an object whose "data" is one, as in SQuAD (its paragraphs become rows with
// id, title, context, question, answers); a file with one object per line is read as jsonl. text: each line, including
// a blank one, is a row whose only column is "text". conll: each line has a word and its annotations, separated by
// white space; blank lines and -DOCSTART- separate sentences. A sentence is a row, whose columns "0", "1", ... are
// lists; the first is also called "tokens", and the last of several "label". parquet, arrow: see arrow_rows.h. Texts
// may be compressed. Throws DataError, including for tokens, which have no columns.
std::unique_ptr<RowFile> open_rows(const DataFile& file);

// A row has no column with the name that a config key gives.
struct MissingColumn : DataError {
  using DataError::DataError;
};

// Calls `read`, which reads the first row of a file. If this row lacks the column, throws a ConfigError, because the
// config names the wrong column.
template <class Read>
void read_first_row(const Read& read) try {
  read();
} catch (const MissingColumn& error) {
  throw ConfigError(cat("/data: ", error.what()));
}

// The names of a row's columns as messages show them: "{label, text}".
std::string columns_text(const DataRow& row);
// The value in a column. Throws MissingColumn, which lists the existing columns and the config key that names the
// column ("data.text_column"); or DataError if `key` is not a config key, but advice on what to set.
const nlohmann::json& column_of(const DataRow& row, const std::string& column, const std::string& key);
// The names of the labels in a column that the row's file states; empty: it states none.
const std::vector<std::string>& label_names_of(const DataRow& row, const std::string& column);
// The value in a column, which must be a text.
const std::string& text_of(const DataRow& row, const std::string& column, const std::string& key);

}  // namespace shardline
