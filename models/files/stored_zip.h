// The entries of a zip archive that stores them uncompressed, like those of torch.save.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace shardline {

// By name; views of the archive.
using ZipEntries = std::map<std::string, std::string_view, std::less<>>;

bool is_zip(std::string_view archive);

// Reads the central directory, also of zip64. Throws a DataError that begins with `path` for an archive that
// contradicts itself, for entries that overlap, are compressed or encrypted, and for names that lead out of a
// directory. Checksums are not verified, because that would read all of the archive.
ZipEntries zip_entries(std::string_view archive, const std::string& path);

}  // namespace shardline
