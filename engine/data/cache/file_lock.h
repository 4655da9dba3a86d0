// A lock between processes (and threads) of a host; the system releases it when its holder ends, however it ends.
#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>

namespace shardline {

class FileLock {
 public:
  // The progress of its holder, in any unit.
  using Progress = std::function<int64_t()>;

  // Creates the file if necessary and waits for the lock. Throws RunError if it cannot be created, or if the holder has
  // made no progress for `limit`.
  FileLock(const std::filesystem::path& path, std::chrono::milliseconds limit, const Progress& of_holder);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  explicit FileLock(const std::filesystem::path& path);  // not locked yet

  int fd_ = -1;
};

}  // namespace shardline
