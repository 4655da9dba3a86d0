// Reads whole files, which may come from an untrusted source.
#pragma once
#include <cstdint>
#include <string>

#include "core/files/descriptor.h"

namespace shardline {

// Far larger than any file of a model or a run that is read as a whole.
inline constexpr int64_t kLargestWhole = int64_t{1} << 29;

// Throws DataError if the file cannot be opened, or if it is a pipe or a device, from which reading might never end.
class RegularFile {
 public:
  explicit RegularFile(const std::string& path);
  int64_t size() const { return size_; }  // when it was opened
  // The first `count` bytes, or fewer if the file is shorter. Throws DataError.
  std::string read(int64_t count) const;

 private:
  std::string path_;
  Descriptor file_;
  int64_t size_ = 0;
};

// The bytes of a file. Throws DataError, without reading any, if it has more than `most_bytes` or is not regular.
std::string read_regular_file(const std::string& path, int64_t most_bytes = kLargestWhole);

}  // namespace shardline
