#include "engine/data/source/delimited_rows.h"

#include <algorithm>
#include <set>
#include <vector>

#include "core/error.h"
#include "engine/data/source/file_window.h"

namespace shardline {
namespace {

constexpr size_t kMostColumns = 4096;

class DelimitedRows final : public RowFile {
 public:
  DelimitedRows(FileWindow text, const DataFile& file)
      : text_(std::move(text)), is_csv_(file.format == DataFormat::csv), is_uneven_(file.uneven) {
    std::vector<std::string> names;
    if (!find_row(names))
      throw DataError(
          cat(text_.name(), ": has no rows", file.columns.empty() ? "; the first one names the columns" : ""));
    if (!file.columns.empty() && std::ranges::find(names, file.columns.back()) == names.end()) {
      is_headless_ = true;
      names_ = file.columns;
      --line_;  // the row is found again
      lines_of_row_ = 1;
      return;
    }
    text_.take(row_bytes_);
    std::set<std::string> different;
    for (const auto& name : names) {
      if (name.empty()) throw DataError(cat(place(), ": a column has an empty name"));
      if (!different.insert(name).second) throw DataError(cat(place(), ": names the column '", name, "' twice"));
    }
    names_ = std::move(names);
  }

  bool next(DataRow& row) override {
    std::vector<std::string> fields;
    if (!find_row(fields)) return false;
    text_.take(row_bytes_);
    row.where = place();
    if (fields.size() != names_.size() && !is_uneven_)
      throw DataError(cat(row.where, ": has ", fields.size(), " fields, but ",
                          is_headless_ ? "this data set has " : "the first row names ", names_.size(), " columns",
                          is_csv_ ? "; fields that contain commas or line breaks must be in quotes" : ""));
    row.is_cut_off = fields.size() < names_.size();
    row.is_headless = is_headless_;
    row.columns = nlohmann::json::object();
    for (size_t i = 0; i < std::min(fields.size(), names_.size()); ++i) row.columns[names_[i]] = std::move(fields[i]);
    return true;
  }
  size_t done() const override { return text_.done(); }

 private:
  std::string place() const { return cat(text_.name(), ":", line_); }

  // Finds the next row that is not blank (a row "" has an empty field): its fields, and its bytes, row_bytes_. False at
  // the end.
  bool find_row(std::vector<std::string>& fields) {
    while (read_row(fields)) {
      const bool begins_quoted = is_csv_ && text_.rest().starts_with('"');
      if (fields.size() != 1 || !fields[0].empty() || begins_quoted) return true;
      text_.take(row_bytes_);
    }
    return false;
  }

  // Reads the fields of the next row; false at the end.
  bool read_row(std::vector<std::string>& fields) {
    line_ += lines_of_row_;
    do {  // repeated with more text if the row may go on
      lines_of_row_ = 1;
      fields.clear();
      rest_ = text_.rest();
      has_end_ = is_open_ = false;
      while (!rest_.empty() && take_field(fields)) {
        if (fields.size() >= kMostColumns) throw DataError(cat(place(), ": has more than ", kMostColumns, " fields"));
        if (rest_.empty()) fields.emplace_back();  // the last field, after a delimiter at the end
      }
    } while (!has_end_ && text_.grow());
    if (is_open_) throw DataError(cat(place(), ": has a quote that is not closed before the end of the file"));
    row_bytes_ = text_.rest().size() - rest_.size();
    return !fields.empty();
  }

  // Takes the next field with the character that ends it; returns whether another field of this row follows.
  bool take_field(std::vector<std::string>& fields) {
    const char delimiter = is_csv_ ? ',' : '\t';
    std::string field;
    if (is_csv_ && rest_.starts_with('"')) field = take_quoted();
    const size_t end = std::min(rest_.find_first_of(is_csv_ ? ",\n" : "\t\n"), rest_.size());
    std::string_view plain = rest_.substr(0, end);
    const bool more = end < rest_.size() && rest_[end] == delimiter;
    has_end_ = end < rest_.size() && !more;
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    if (!more && plain.ends_with('\r')) plain.remove_suffix(1);
    fields.push_back(field.append(plain));
    return more;
  }

  std::string take_quoted() {
    std::string text;
    rest_.remove_prefix(1);
    for (;;) {
      const size_t end = std::min(rest_.find('"'), rest_.size());
      for (const char c : rest_.substr(0, end)) lines_of_row_ += c == '\n';
      text.append(rest_.substr(0, end));
      is_open_ = end == rest_.size();
      if (is_open_) rest_ = {};
      if (is_open_) return text;
      rest_.remove_prefix(end + 1);
      if (!rest_.starts_with('"')) return text;
      text += '"';
      rest_.remove_prefix(1);
    }
  }

  FileWindow text_;
  bool is_csv_, is_uneven_, is_headless_ = false;
  std::vector<std::string> names_;
  int64_t line_ = 0, lines_of_row_ = 1;  // where the last row begins, and the number of its lines
  // While a row is read: the text after what has been read of it, whether its end was found, and whether it has a quote
  // that is not closed.
  std::string_view rest_;
  bool has_end_ = false, is_open_ = false;
  size_t row_bytes_ = 0;
};

}  // namespace

std::unique_ptr<RowFile> open_delimited(const DataFile& file) {
  return std::make_unique<DelimitedRows>(FileWindow(file.path), file);
}

std::unique_ptr<RowFile> csv_rows_of(std::string_view bytes, const std::string& name) {
  return std::make_unique<DelimitedRows>(FileWindow(bytes, name), DataFile{name, DataFormat::csv});
}

}  // namespace shardline
