// Whole files that somebody else may have made.
#pragma once
#include <cstdint>
#include <string>

namespace shardline {

// Far more than any file of a model or a run that is read whole.
inline constexpr int64_t kLargestWhole = int64_t{1} << 29;

// The bytes of a file. Throws DataError, without reading any, if it has more than `most_bytes`, or if it is a pipe or a
// device, from which reading might never end.
std::string read_regular_file(const std::string& path, int64_t most_bytes = kLargestWhole);

}  // namespace shardline
