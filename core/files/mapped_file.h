// Maps a file of any size as a read-only span of bytes, without reading it first.
#pragma once
#include <cstddef>
#include <filesystem>
#include <string_view>

namespace shardline {

class MappedFile {
 public:
  // Throws DataError, with the file and the system's reason, if it cannot be opened, is a folder, or cannot be mapped.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  MappedFile& operator=(MappedFile&&) = delete;

  const std::filesystem::path& path() const { return path_; }
  size_t size() const { return size_; }
  std::string_view bytes() const { return {data_, size_}; }
  // Call it after reading a part of bytes(): that part then counts as this process's memory only when it is read again.
  void release(std::string_view part) const;

 private:
  std::filesystem::path path_;
  char* data_ = nullptr;  // mapped for reading only; null for an empty file
  size_t size_ = 0;
};

}  // namespace shardline
