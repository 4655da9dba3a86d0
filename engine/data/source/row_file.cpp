#include "engine/data/source/row_file.h"

#include <vector>

#include "core/error.h"
#include "core/files/json_data.h"
#include "core/files/json_text.h"
#include "engine/data/source/arrow_rows.h"
#include "engine/data/source/conll_rows.h"
#include "engine/data/source/delimited_rows.h"
#include "engine/data/source/file_window.h"
#include "engine/data/source/jsonl.h"
#include "engine/data/source/line_rows.h"

namespace shardline {
namespace {

using nlohmann::json;

class JsonLines final : public LineRows {
 public:
  using LineRows::LineRows;

  bool next(DataRow& row) override {
    for (std::string_view line; take(line);) {
      if (is_blank_line(line)) continue;
      row.where = place();
      row.columns = parse_data_json(line, row.where);
      return true;
    }
    return false;
  }
};

// Each line of a text is a row, blank ones included.
class TextLines final : public LineRows {
 public:
  using LineRows::LineRows;

  bool next(DataRow& row) override {
    std::string_view line;
    if (!take(line)) return false;
    check_is_text(name(), line, offset());
    if (line.ends_with('\r')) line.remove_suffix(1);
    row.where = place();
    row.columns = {{"text", line}};
    return true;
  }
};

// The questions of one of SQuAD's articles, each with the values of its article and paragraph.
void add_questions(const json& article, const std::string& where, std::vector<json>& rows) {
  for (const json& paragraph : article.at("paragraphs")) {
    if (!paragraph.is_object() || !paragraph.contains("qas") || !paragraph.contains("context"))
      throw DataError(cat(where, ": a paragraph must have \"context\" and \"qas\""));
    for (const json& question : paragraph.at("qas")) {
      if (!question.is_object()) throw DataError(cat(where, ": \"qas\" must contain objects"));
      json row = question;
      row["context"] = paragraph.at("context");
      if (article.contains("title")) row["title"] = article.at("title");
      json texts = json::array(), starts = json::array();
      const bool impossible = question.value("is_impossible", json(false)) == json(true);
      for (const json& answer : impossible ? json::array() : question.value("answers", json::array())) {
        if (!answer.is_object()) throw DataError(cat(where, ": \"answers\" must contain objects"));
        texts.push_back(answer.value("text", json()));
        starts.push_back(answer.value("answer_start", json()));
      }
      row["answers"] = {{"text", texts}, {"answer_start", starts}};
      rows.push_back(std::move(row));
    }
  }
}

// Holds all rows, because a JSON text has to be parsed as a whole.
class JsonRows final : public RowFile {
 public:
  JsonRows(const DataFile& file, size_t bytes, const json& rows) : path_(file.path.string()), bytes_(bytes) {
    for (const json& row : rows) {
      const std::string where = cat(path_, ", row ", rows_.size() + 1);
      if (!row.is_object()) throw DataError(cat(where, ": must be an object, but is ", row.type_name()));
      if (row.contains("paragraphs") && row.at("paragraphs").is_array())
        add_questions(row, where, rows_);
      else
        rows_.push_back(row);
    }
  }

  bool next(DataRow& row) override {
    if (next_ == rows_.size()) return false;
    row.columns = std::move(rows_[next_++]);
    row.where = cat(path_, ", row ", next_);
    return true;
  }
  size_t done() const override { return bytes_; }

 private:
  std::string path_;
  size_t bytes_;  // size of the file
  std::vector<json> rows_;
  size_t next_ = 0;
};

std::unique_ptr<RowFile> open_json(const DataFile& file) {
  FileWindow opened(file.path);
  const std::string_view text = opened.read_all();
  std::string_view rest = text;
  while (!rest.empty() && is_blank_line(rest.substr(0, rest.find('\n')))) take_line(rest);
  // Many programs write JSON Lines to files with the extension of JSON.
  const json first = json_in_text(std::string(rest.substr(0, rest.find('\n'))));
  if (first.is_object() && !first.contains("data")) return std::make_unique<JsonLines>(file);
  const std::string name = file.path.string();
  const json whole = parse_data_value(text, name);
  const json* rows = whole.is_object() && whole.contains("data") ? &whole.at("data") : &whole;
  if (!rows->is_array())
    throw DataError(cat(name, ": must be an array of objects, or an object whose \"data\" is one, but is ",
                        rows->is_null()     ? ""
                        : rows->is_object() ? "an "
                                            : "a ",
                        rows->type_name()));
  opened.take(text.size());
  return std::make_unique<JsonRows>(file, opened.done(), *rows);
}

}  // namespace

std::unique_ptr<RowFile> open_rows(const DataFile& file) {
  switch (file.format) {
    case DataFormat::text:
      return std::make_unique<TextLines>(file);
    case DataFormat::jsonl:
      return std::make_unique<JsonLines>(file);
    case DataFormat::json:
      return open_json(file);
    case DataFormat::csv:
    case DataFormat::tsv:
      return open_delimited(file);
    case DataFormat::conll:
      return open_conll(file);
    case DataFormat::parquet:
    case DataFormat::arrow:
      return open_arrow(file);
    default:
      throw DataError(cat(file.path.string(),
                          file.format == DataFormat::safetensors ? ": has tensors, but this task reads "
                                                                 : ": has token ids and no columns; this task reads ",
                          "text, jsonl, json, csv, tsv, conll, parquet and arrow files"));
  }
}

std::string columns_text(const DataRow& row) {
  std::string names;
  for (const auto& [name, ignored] : row.columns.items()) names += (names.empty() ? "" : ", ") + name;
  return cat('{', names, '}');
}

const json& column_of(const DataRow& row, const std::string& column, const std::string& key) {
  const auto found = row.columns.find(column);
  if (found != row.columns.end()) return *found;
  const std::string names = columns_text(row);
  const bool of_text_file = names == "{text}" && row.where.find(".txt") != std::string::npos;
  const std::string text = cat(
      row.where, ": has no '", column, row.tensor_row < 0 ? "'" : "' of one or two dimensions", ", only ", names, "; ",
      of_text_file ? "a text file has no other columns: name JSONL, CSV, TSV or Parquet files, or set " : "set ", key);
  if (key.starts_with("data.") || key.starts_with("model.")) throw MissingColumn(text);
  throw DataError(text);
}

const std::vector<std::string>& label_names_of(const DataRow& row, const std::string& column) {
  static const std::vector<std::string> kNone;
  if (!row.label_names) return kNone;
  const auto found = row.label_names->find(column);
  return found == row.label_names->end() ? kNone : found->second;
}

const std::string& text_of(const DataRow& row, const std::string& column, const std::string& key) {
  const json& value = column_of(row, column, key);
  if (value.is_string()) return value.get_ref<const std::string&>();
  throw DataError(cat(row.where, ": '", column, "' must be a string, but is ", value.type_name()));
}

}  // namespace shardline
