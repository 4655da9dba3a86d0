// The entries of a zip archive that stores them uncompressed, such as one written by torch.save.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace shardline {

// Entries by name, as views of the archive.
using ZipEntries = std::map<std::string, std::string_view, std::less<>>;

bool is_zip(std::string_view archive);

// Reads the central directory, including zip64. Throws a DataError that begins with `path` if the archive contradicts
// itself, if entries overlap, are compressed or encrypted, or if names lead out of a directory. Does not verify
// checksums, because that would read all of the archive.
ZipEntries zip_entries(std::string_view archive, const std::string& path);

}  // namespace shardline
