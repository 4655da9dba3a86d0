#include "engine/data/source/delimited_rows.h"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "core/error.h"

namespace shardline {
namespace {

constexpr size_t kMostColumns = 4096;

class DelimitedRows final : public RowFile {
 public:
  explicit DelimitedRows(const DataFile& file) : DelimitedRows(MappedFile(file.path), {}, file) {}
  // Of bytes in memory that file.path stands for.
  DelimitedRows(std::string_view bytes, const DataFile& file) : DelimitedRows(std::nullopt, bytes, file) {}

  bool next(DataRow& row) override {
    std::vector<std::string> fields;
    if (!take_row(fields)) return false;
    row.where = place();
    if (fields.size() != names_.size() && !is_uneven_)
      throw DataError(cat(row.where, ": has ", fields.size(), " fields, but ",
                          is_headless_ ? "this data set has " : "the first row names ", names_.size(), " columns",
                          is_csv_ ? "; fields that contain commas or line ends must be in quotes" : ""));
    row.is_cut_off = fields.size() < names_.size();
    row.is_headless = is_headless_;
    row.columns = nlohmann::json::object();
    for (size_t i = 0; i < std::min(fields.size(), names_.size()); ++i) row.columns[names_[i]] = std::move(fields[i]);
    return true;
  }
  size_t done() const override { return size_ - rest_.size(); }

 private:
  DelimitedRows(std::optional<MappedFile> mapped, std::string_view bytes, const DataFile& file)
      : mapped_(std::move(mapped)),
        name_(file.path.string()),
        rest_(mapped_ ? mapped_->bytes() : bytes),
        size_(rest_.size()),
        is_csv_(file.format == DataFormat::csv),
        is_uneven_(file.uneven) {
    if (rest_.starts_with("\xEF\xBB\xBF")) rest_.remove_prefix(3);  // a mark of UTF-8
    const std::string_view all = rest_;
    std::vector<std::string> names;
    if (!take_row(names))
      throw DataError(cat(name_, ": has no rows", file.columns.empty() ? "; the first one names the columns" : ""));
    if (!file.columns.empty() && std::ranges::find(names, file.columns.back()) == names.end()) {
      is_headless_ = true;
      names_ = file.columns;
      rest_ = all;
      line_ = 0;
      lines_of_row_ = 1;
      return;
    }
    std::set<std::string> different;
    for (const auto& name : names) {
      if (name.empty()) throw DataError(cat(place(), ": names a column with an empty text"));
      if (!different.insert(name).second) throw DataError(cat(place(), ": names the column '", name, "' twice"));
    }
    names_ = std::move(names);
  }

  std::string place() const { return cat(name_, ":", line_); }

  // The fields of the next row that is not blank (a row "" has an empty field); false at the end.
  bool take_row(std::vector<std::string>& fields) {
    bool is_blank = true;
    do {
      if (rest_.empty()) return false;
      const bool begins_quoted = is_csv_ && rest_.starts_with('"');
      fields.clear();
      line_ += lines_of_row_;
      lines_of_row_ = 1;
      while (take_field(fields)) {
        if (fields.size() >= kMostColumns) throw DataError(cat(place(), ": has more than ", kMostColumns, " fields"));
      }
      is_blank = fields.size() == 1 && fields[0].empty() && !begins_quoted;
    } while (is_blank);
    return true;
  }

  // Takes the next field with the character that ends it; whether another one of this row follows.
  bool take_field(std::vector<std::string>& fields) {
    const char delimiter = is_csv_ ? ',' : '\t';
    std::string field;
    if (is_csv_ && rest_.starts_with('"')) field = take_quoted();
    const size_t end = std::min(rest_.find_first_of(is_csv_ ? ",\n" : "\t\n"), rest_.size());
    std::string_view plain = rest_.substr(0, end);
    const bool more = end < rest_.size() && rest_[end] == delimiter;
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    if (!more && plain.ends_with('\r')) plain.remove_suffix(1);
    fields.push_back(field.append(plain));
    return more;
  }

  std::string take_quoted() {
    std::string text;
    rest_.remove_prefix(1);
    for (;;) {
      const size_t end = rest_.find('"');
      if (end == std::string_view::npos)
        throw DataError(cat(place(), ": has a quote that is not closed before the end of the file"));
      for (const char c : rest_.substr(0, end)) lines_of_row_ += c == '\n';
      text.append(rest_.substr(0, end));
      rest_.remove_prefix(end + 1);
      if (!rest_.starts_with('"')) return text;
      text += '"';
      rest_.remove_prefix(1);
    }
  }

  std::optional<MappedFile> mapped_;
  std::string name_;
  std::string_view rest_;
  size_t size_;
  bool is_csv_, is_uneven_, is_headless_ = false;
  std::vector<std::string> names_;
  int64_t line_ = 0, lines_of_row_ = 1;  // where the last row begins, and how many lines it has
};

}  // namespace

std::unique_ptr<RowFile> open_delimited(const DataFile& file) {
  return std::make_unique<DelimitedRows>(file);
}

std::unique_ptr<RowFile> csv_rows_of(std::string_view bytes, const std::string& name) {
  return std::make_unique<DelimitedRows>(bytes, DataFile{name, DataFormat::csv});
}

}  // namespace shardline
