// Copies of data files in a form that can be read from any position, kept while a token cache is made from them.
#pragma once
#include <filesystem>
#include <functional>
#include <string>

#include "engine/data/source/data_files.h"

namespace shardline {

struct UnpackOptions {
  std::filesystem::path path;  // where the copy is; it is kept if it already exists
  std::string text_column;
  int64_t vocab_size = 0;
  std::function<void()> working;  // called from time to time
};

// Whether open_data_source cannot read pieces of the file as it is, or would hold all of it in memory: compressed texts
// and JSON Lines, and the formats of Arrow.
bool needs_unpacking(const DataFile& file);

// Writes the copy: the text of a compressed file, or the documents of the rows as JSON Lines. A few megabytes are in
// memory at a time. The copy appears when it is complete. Throws DataError for bad data and RunError if the disk fails.
DataFile unpacked(const DataFile& file, const UnpackOptions& options);

}  // namespace shardline
