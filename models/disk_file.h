// Files that other processes may be writing at the same time, and files that are there whole or not at all.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace shardline {

// An open file. All errors are RunErrors that name the file and the system's reason.
class DiskFile {
 public:
  static DiskFile open(const std::string& path);    // an existing one, for writing
  static DiskFile create(const std::string& path);  // empty, whatever was there
  DiskFile(DiskFile&& other) noexcept;
  DiskFile& operator=(DiskFile&&) = delete;
  ~DiskFile();

  // Gives the file this size, with the room on disk for all of it.
  void reserve(int64_t bytes);
  void write_at(int64_t offset, std::string_view bytes);
  // Returns when the contents are on the disk.
  void sync();

 private:
  DiskFile(const std::string& path, int flags);
  [[noreturn]] void fail(const char* what, int error) const;

  std::string path_;
  int fd_ = -1;
};

// Puts a file in place of another of that name at once, also for a reader after a power cut.
void rename_file(const std::string& from, const std::string& to);
void write_file(const std::string& path, std::string_view text);
// Makes names that were given, changed or removed in a directory last.
void sync_directory(const std::string& path);

}  // namespace shardline
