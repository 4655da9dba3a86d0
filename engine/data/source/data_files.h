// What the paths in the `data` section of a config refer to: files in a fixed order, each with its format.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "core/files/mapped_file.h"
#include "engine/data/text/data_format.h"

namespace shardline {

struct DataFile {
  std::filesystem::path path;  // of a Megatron pair: the .bin
  DataFormat format;           // never automatic
};

// Whether `name` refers to something that exists: a file, a folder, or the prefix of a Megatron pair.
bool is_data_file(const std::string& name);

// Files in the order given; a folder stands for all files below it, sorted by path (names that begin with a dot are
// left out, and so is the .idx beside a .bin). An automatic format goes by extension (.txt .text .md; .jsonl .ndjson;
// .bin .idx). A Megatron pair may be named by its common prefix. DataError for what does not exist, cannot be read, is
// empty, or has an unknown extension when the format is automatic; ConfigError for an empty list.
std::vector<DataFile> find_data_files(const std::vector<std::string>& paths, DataFormat format);

// For the paths that exist, whatever `train` would refuse and that shows without reading files through: unknown
// extensions, empty files and folders, a NUL byte near the front of a text, a first JSONL row without a string in
// `text_column`, and headers, sizes and indexes of token files. DataError. Paths that do not exist are skipped: plans
// are also made where the data is not.
void check_data_files(const std::vector<std::string>& paths, DataFormat format, const std::string& text_column);

// DataError when bytes [begin, end) of a text file have a NUL byte.
void check_is_text(const MappedFile& file, size_t begin, size_t end);

}  // namespace shardline
