#include "engine/data/cache/file_digest.h"

#include "core/files/mapped_file.h"
#include "core/hex.h"

namespace shardline {
namespace {
constexpr size_t kReportedBytes = size_t{64} << 20;
}  // namespace

FileDigest::FileDigest() : state_(XXH3_createState(), XXH3_freeState) {
  XXH3_128bits_reset(state_.get());
}

void FileDigest::add(std::string_view text) {
  add_size(text.size());
  XXH3_128bits_update(state_.get(), text.data(), text.size());
}

void FileDigest::add_file(const std::filesystem::path& path, const std::function<void(int64_t bytes)>& read) {
  const MappedFile file(path);
  add_size(file.size());
  for (size_t offset = 0; offset < file.size(); offset += kReportedBytes) {
    const std::string_view part = file.bytes().substr(offset, kReportedBytes);
    XXH3_128bits_update(state_.get(), part.data(), part.size());
    file.release(part);
    read(part.size());
  }
}

XXH128_hash_t FileDigest::value() const {
  return XXH3_128bits_digest(state_.get());
}

void FileDigest::add_size(uint64_t size) {
  XXH3_128bits_update(state_.get(), &size, sizeof size);
}

std::string digest_text(XXH128_hash_t digest) {
  return hex_digits(digest.high64) + hex_digits(digest.low64);
}

}  // namespace shardline
