#include "engine/data/source/data_files.h"

#include <algorithm>
#include <map>

#include "core/error.h"
#include "engine/data/compressed/decompressor.h"
#include "engine/data/source/file_window.h"
#include "engine/data/source/row_file.h"
#include "engine/data/source/saved_dataset.h"
#include "engine/data/source/token_file.h"
#include "engine/data/source/tokenised_row.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

constexpr size_t kCheckedBytes = 1 << 16;  // at the beginning of a text

DataFormat format_of(const fs::path& path, DataFormat format) {
  static const std::map<std::string, DataFormat> extensions = {
      {".txt", DataFormat::text},        {".text", DataFormat::text},    {".md", DataFormat::text},
      {".jsonl", DataFormat::jsonl},     {".ndjson", DataFormat::jsonl}, {".json", DataFormat::json},
      {".csv", DataFormat::csv},         {".tsv", DataFormat::tsv},      {".conll", DataFormat::conll},
      {".parquet", DataFormat::parquet}, {".arrow", DataFormat::arrow},  {".feather", DataFormat::arrow},
      {".bin", DataFormat::tokens},      {".idx", DataFormat::tokens},   {".safetensors", DataFormat::safetensors}};
  const bool is_compressed = compression_of_name(path) != Compression::none;
  if (format == DataFormat::automatic) {
    const std::string extension = (is_compressed ? path.stem() : path).extension().string();
    const auto known = extensions.find(extension);
    if (known == extensions.end())
      throw DataError(cat(path.string(), ": the extension '", extension,
                          "' does not determine its format (known: .txt .text .md .jsonl .ndjson .json .csv .tsv "
                          ".conll, also followed by .gz or .zst, and .parquet .arrow .feather .bin .idx "
                          ".safetensors); set data.format, or move the file away"));
    format = known->second;
  }
  if (is_compressed && (format == DataFormat::tokens || format == DataFormat::safetensors || is_columnar(format)))
    throw DataError(cat(path.string(), ": compressed files of this format are not supported; decompress the file"));
  return format;
}

bool is_index_of_pair(const fs::path& path) {
  return path.extension() == ".idx" && fs::exists(fs::path(path).replace_extension(".bin"));
}

// A Megatron pair is represented by its .bin.
fs::path data_part(const fs::path& path) {
  return path.extension() == ".idx" ? fs::path(path).replace_extension(".bin") : path;
}

void require_content(const fs::path& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  if (error) throw DataError(cat(path.string(), ": cannot be read: ", error.message()));
  if (size == 0) throw DataError(cat(path.string(), ": the data file is empty"));
}

void check_format(const DataFile& file, const std::string& text_column) {
  if (file.format == DataFormat::tokens) {
    const TokenFile opened(file.path);
    return;
  }
  if (file.format == DataFormat::text) {
    const FileWindow text(file.path);
    return check_is_text(text.name(), text.rest().substr(0, kCheckedBytes), text.offset());
  }
  DataRow row;
  if (open_rows(file)->next(row) && !tokenised_row(row)) text_of(row, text_column, "data.text_column");
}

}  // namespace

std::vector<std::filesystem::path> files_below(const std::filesystem::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, fs::directory_options::follow_directory_symlink, error);
  for (const fs::recursive_directory_iterator end; !error && entry != end; entry.increment(error)) {
    const bool hidden = entry->path().filename().string().starts_with('.');
    if (hidden) {
      entry.disable_recursion_pending();
    } else if (entry->is_regular_file(error) && !is_index_of_pair(entry->path())) {
      files.push_back(entry->path());
    }
    if (error) break;
  }
  if (error) throw DataError(cat(folder.string(), ": cannot be listed: ", error.message()));
  if (files.empty()) throw ConfigError(cat(folder.string(), ": the folder contains no files"));
  std::sort(files.begin(), files.end());
  return files;
}

bool is_columnar(DataFormat format) {
  return format == DataFormat::parquet || format == DataFormat::arrow;
}

bool is_data_file(const std::string& name) {
  std::error_code ignored;
  return fs::exists(name, ignored) || (fs::exists(name + ".bin", ignored) && fs::exists(name + ".idx", ignored));
}

std::vector<DataFile> find_data_files(const std::vector<std::string>& paths, DataFormat format) {
  if (paths.empty()) throw ConfigError("data: no files are given");
  std::vector<DataFile> files;
  for (const std::string& name : paths) {
    const fs::path path(name);
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (fs::is_directory(status)) {
      for (const fs::path& file : is_saved_dataset(path) ? files_of_dataset(path) : files_below(path))
        files.push_back({file, format_of(file, format)});
      continue;
    }
    if (!is_data_file(name)) throw DataError(cat(name, ": there is no such data file or folder"));
    if (!fs::exists(status)) {
      const fs::path pair = name + ".bin";
      files.push_back({pair, format_of(pair, format)});
      continue;
    }
    const DataFile file{data_part(path), format_of(path, format)};
    require_content(file.path);
    files.push_back(file);
  }
  return files;
}

void check_data_files(const std::vector<std::string>& paths, DataFormat format, const std::string& text_column) {
  for (const std::string& path : paths) {
    if (!fs::exists(path) && !fs::exists(path + ".bin")) continue;
    for (const DataFile& file : find_data_files({path}, format)) check_format(file, text_column);
  }
}

void check_is_text(const std::string& name, std::string_view part, size_t offset) {
  const size_t nul = part.find('\0');
  if (nul == std::string_view::npos) return;
  throw DataError(cat(name, ": has a NUL byte at offset ", offset + nul,
                      ", so it is not text; should data.format be tokens, or is there a binary file in the folder?"));
}

}  // namespace shardline
