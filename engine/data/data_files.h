// What the paths in the `data` section of a config stand for: files in a fixed order, each with its format.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace shardline {

enum class DataFormat { text, jsonl, tokens };

struct DataFile {
  std::filesystem::path path;  // of a Megatron pair: the .bin
  DataFormat format;
};

// Whether `name` stands for something that is there: a file, a folder, or the prefix of a Megatron pair.
bool is_data_file(const std::string& name);

// Files in the order given; a folder stands for all files below it, sorted by path (names that begin with a dot are
// left out, and so is the .idx beside a .bin). `format`: "text", "jsonl", "tokens", or "auto", which goes by extension
// (.txt .text .md; .jsonl .ndjson; .bin .idx). A Megatron pair may be named by its common prefix. DataError for what
// does not exist, cannot be read, is empty, or has an unknown extension under "auto".
std::vector<DataFile> find_data_files(const std::vector<std::string>& paths, const std::string& format);

}  // namespace shardline
