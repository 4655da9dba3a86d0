// Files that gzip or zstd have compressed, read from the first byte to the last in a bounded amount of memory.
#pragma once
#include <cstddef>
#include <memory>
#include <string_view>

#include "core/files/mapped_file.h"

namespace shardline {

enum class Compression { none, gzip, zstd };

// The compression that the first bytes indicate; no text in UTF-8 begins with these bytes.
Compression compression_of(std::string_view bytes);
// The compression that the extension indicates: .gz, .zst or .zstd.
Compression compression_of_name(const std::filesystem::path& path);

// The compression of the contents. Throws DataError if the name has such an extension, but the contents are not
// compressed.
Compression compression_of_file(const MappedFile& file);

class Decompressor {
 public:
  virtual ~Decompressor() = default;
  // Writes up to `size` further bytes to `out` and returns how many; 0: the end. A file may consist of several
  // compressed members. Throws DataError, which names the file, if it is damaged, ends too early or has other bytes at
  // the end.
  virtual size_t read(char* out, size_t size) = 0;
  virtual size_t done() const = 0;  // bytes of the file that have been read
};

// The file must outlive the result. `compression` is not none.
std::unique_ptr<Decompressor> open_decompressor(const MappedFile& file, Compression compression);

}  // namespace shardline
