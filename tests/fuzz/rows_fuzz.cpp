// Tables and lines of text. The first line of an input specifies the format, and the rest is the file: it is read to
// its end, as rows of texts and lists, or refused.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/data/compressed/decompressor.h"
#include "engine/data/source/row_file.h"
#include "tests/fuzz/fuzz.h"

namespace shardline::rows_fuzz {
namespace {

DataFile file_of(const std::string& format, std::string_view content) {
  static const std::map<std::string, DataFormat> formats = {
      {"text", DataFormat::text}, {"jsonl", DataFormat::jsonl}, {"json", DataFormat::json},    {"csv", DataFormat::csv},
      {"tsv", DataFormat::tsv},   {"conll", DataFormat::conll}, {"tokens", DataFormat::tokens}};
  const bool has_names = !format.ends_with(" without names");
  const auto known = formats.find(format.substr(0, format.find(' ')));
  DataFile file{fuzz::file_with("rows", content), known == formats.end() ? DataFormat::csv : known->second};
  if (!has_names) file.columns = {"label", "title", "content"};
  file.uneven = !has_names;
  return file;
}

void read_rows(const DataFile& file, size_t size) {
  const auto rows = open_rows(file);
  size_t done = 0;
  for (DataRow row; rows->next(row);) {
    FUZZ_REQUIRE(row.columns.is_object(), row.columns.type_name());
    FUZZ_REQUIRE(row.where.starts_with(file.path.string()), row.where);
    FUZZ_REQUIRE(rows->done() >= done && rows->done() <= size, rows->done(), " bytes of ", size);
    done = rows->done();
    FUZZ_REQUIRE(label_names_of(row, "label").empty(), "only Parquet and Arrow files name their labels");
    try {
      const std::string& text = text_of(row, "text", "data.text_column");
      FUZZ_REQUIRE(text == row.columns.at("text"), text);
    } catch (const DataError& error) {
      FUZZ_REQUIRE(std::string_view(error.what()).starts_with(row.where), error.what());
    }
    if (file.format == DataFormat::csv || file.format == DataFormat::tsv || file.format == DataFormat::text)
      for (const auto& [name, value] : row.columns.items()) FUZZ_REQUIRE(value.is_string(), name, " is not text");
    if (file.format != DataFormat::conll) continue;
    for (const auto& [name, value] : row.columns.items())
      FUZZ_REQUIRE(value.is_array() && value.size() == row.columns.at("tokens").size(), name, " has another length");
  }
  FUZZ_REQUIRE(rows->done() == size, rows->done(), " bytes of ", size, " at the end");
}

}  // namespace

FUZZ_TARGET(rows) {
  const std::string text = fuzz::text_of(data, size);
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view content = std::string_view(text).substr(std::min(end + 1, text.size()));
  if (content.empty()) return false;                               // find_data_files refuses empty files
  if (compression_of(content) != Compression::none) return false;  // compressed_fuzz.cpp
  const DataFile file = file_of(text.substr(0, end), content);
  return fuzz::accepts(size, [&] { read_rows(file, content.size()); });
}

}  // namespace shardline::rows_fuzz
