// What the paths in the `data` section of a config refer to: files in a fixed order, each with its format.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "engine/data/text/data_format.h"

namespace shardline {

struct DataFile {
  std::filesystem::path path;  // for a Megatron pair, that of the .bin
  DataFormat format;           // never automatic
  // CSV and TSV files: the names of the columns if the first row does not have the last one of these, and whether rows
  // may have other numbers of fields than there are columns.
  std::vector<std::string> columns = {};
  bool uneven = false;
  int64_t part = 0;        // its part of the data, if the parts have weights
  std::string shown = {};  // its name in messages; empty: the path

  std::string shown_name() const { return shown.empty() ? path.string() : shown; }
};

// All files below a folder, sorted by path, without names that begin with a dot and without the .idx that belongs to a
// .bin. Throws ConfigError if there is none.
std::vector<std::filesystem::path> files_below(const std::filesystem::path& folder);

// Whether files of this format have rows of columns that are read with Apache Arrow.
bool is_columnar(DataFormat format);

// Whether `name` refers to something that exists: a file, a folder, or the prefix of a Megatron pair.
bool is_data_file(const std::string& name);

// Returns files in the order given; a folder stands for all files below it, and one that `datasets` has saved for the
// files that it lists (saved_dataset.h). An automatic format depends on the extension (.txt .text .md; .jsonl .ndjson;
// .json; .csv; .tsv; .conll; .parquet; .arrow .feather; .bin .idx; .safetensors), which the extension of a compressed
// file may follow (.gz; .zst .zstd), except for the last four formats. A Megatron pair may be named by its common
// prefix. Throws DataError for a path that does not exist, cannot be read, is empty, or has an unknown extension if the
// format is automatic; ConfigError for an empty list and a folder without files.
std::vector<DataFile> find_data_files(const std::vector<std::string>& paths, DataFormat format);

// Throws DataError for mistakes in existing paths that `train` would refuse and that show without reading whole files:
// unknown extensions, empty files and folders, a NUL byte near the beginning of a text, a first row with neither a
// string in `text_column` nor tokens, and wrong headers, sizes and indexes of token files. Skips paths that do not
// exist, because plans are also made on machines without the data.
void check_data_files(const std::vector<std::string>& paths, DataFormat format, const std::string& text_column);

// Throws DataError if a part of the text file with this name, which begins at `offset` there, contains a NUL byte.
void check_is_text(const std::string& name, std::string_view part, size_t offset);

}  // namespace shardline
