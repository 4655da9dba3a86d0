#include "engine/data/cache/unpacked_file.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files/mapped_file.h"
#include "engine/data/cache/partial_file.h"
#include "engine/data/compressed/decompressor.h"
#include "engine/data/source/data_source.h"
#include "engine/data/source/row_file.h"

namespace shardline {
namespace {

constexpr size_t kWrittenBytes = size_t{4} << 20;  // at a time

void write_text(const DataFile& file, PartialFile& copy, const std::function<void()>& working) {
  const MappedFile mapped(file.path);
  const auto text = open_decompressor(mapped, compression_of(mapped.bytes()));
  std::string part(kWrittenBytes, '\0');
  while (const size_t read = text->read(part.data(), part.size())) {
    copy.append(std::string_view(part).substr(0, read));
    working();
  }
}

void write_rows(const DataFile& file, PartialFile& copy, const UnpackOptions& options) {
  std::string lines;
  const auto flush = [&] {
    copy.append(lines);
    lines.clear();
    options.working();
  };
  DataRow row;
  for (const auto rows = open_rows(file); rows->next(row);) {
    const Document document = document_in(row, options.text_column, options.vocab_size);
    nlohmann::json line;
    if (const auto* text = std::get_if<std::string>(&document))
      line[options.text_column] = *text;
    else
      line["input_ids"] = std::get<TokenIds>(document);
    lines += line.dump() + '\n';
    if (lines.size() >= kWrittenBytes) flush();
  }
  flush();
}

}  // namespace

bool needs_unpacking(const DataFile& file) {
  if (is_columnar(file.format)) return true;
  if (file.format != DataFormat::text && file.format != DataFormat::jsonl) return false;
  return compression_of_file(MappedFile(file.path)) != Compression::none;
}

DataFile unpacked(const DataFile& file, const UnpackOptions& options) {
  DataFile copy = file;
  copy.shown = file.shown_name();
  copy.path = options.path;
  if (is_columnar(file.format)) copy.format = DataFormat::jsonl;
  if (std::filesystem::exists(options.path)) return copy;
  PartialFile written(options.path);
  written.clear();
  try {
    if (is_columnar(file.format))
      write_rows(file, written, options);
    else
      write_text(file, written, options.working);
    written.commit();
  } catch (const RunError&) {  // in particular a full disk, which must not be left full
    written.discard();
    throw;
  }
  return copy;
}

}  // namespace shardline
