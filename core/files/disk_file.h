// Files that other processes may be writing at the same time, and files that appear either complete or not at all.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.h"

namespace shardline {

// "PATH: WHAT: the system's reason; what the user can do about it", for an errno.
RunError file_error(const std::string& path, const std::string& what, int error);

// An open file. All errors are RunErrors that name the file and the system's reason.
class DiskFile {
 public:
  static DiskFile open(const std::string& path);  // opens an existing file for writing
  // As above, but aligned parts of what is written bypass the page cache if the file system supports that. Memory and
  // offset are aligned if they are multiples of 4096.
  static DiskFile open_uncached(const std::string& path);
  static DiskFile create(const std::string& path);  // creates the file, or opens it with its contents if it exists
  DiskFile(DiskFile&& other) noexcept;
  DiskFile& operator=(DiskFile&&) = delete;
  ~DiskFile();

  // Sets the size of the file and, if the file system supports it, reserves disk space for all of it.
  void reserve(int64_t bytes);
  void write_at(int64_t offset, std::string_view bytes);
  bool bypasses_cache() const { return direct_ >= 0; }  // except for unaligned ends
  // Returns when everything written is on the disk.
  void sync();

 private:
  DiskFile(const std::string& path, int flags);
  void write_with(int fd, int64_t offset, std::string_view bytes);

  std::string path_;
  int fd_ = -1;
  int direct_ = -1;  // bypasses the page cache
};

// Both replace a file of that name atomically: readers find either the old or the new contents. For write_file this
// holds even after a power failure; for rename_file only if `from` was synced before. All errors are RunErrors;
// write_file removes what it could not complete.
void rename_file(const std::string& from, const std::string& to);
void write_file(const std::string& path, std::string_view text);
// Exchanges the names of two files or directories, atomically if the file system supports it. Otherwise, `other` has
// this suffix in the meantime.
inline constexpr const char* kReplacedSuffix = ".replaced.incomplete";
void exchange_files(const std::string& one, const std::string& other);
// Makes creations, renames and removals in a directory durable.
void sync_directory(const std::string& path);
// Makes everything durable that any process has written to the file so far.
void sync_file(const std::string& path);
// Durably creates a directory and all its parents that do not exist. All errors are RunErrors.
void make_directories(const std::string& path);

}  // namespace shardline
