// The safetensors files of a directory that belong together: one file, or the files that an index names.
#pragma once
#include <map>
#include <string>

#include "models/files/safetensors.h"

namespace shardline {

// Returns by file name: STEM.safetensors if it exists, otherwise the files of STEM.safetensors.index.json; none if that
// does not exist either. Throws DataError unless index and files agree.
std::map<std::string, SafetensorsFile> open_safetensors(const std::string& directory, const std::string& stem);

}  // namespace shardline
