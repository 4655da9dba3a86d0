// A lock between processes (and threads) of a host; the system releases it when its holder ends, however it ends.
#pragma once
#include <chrono>
#include <filesystem>

namespace shardline {

class FileLock {
 public:
  // Creates the file if need be and waits for the lock. RunError when it cannot be created or `limit` has passed.
  FileLock(const std::filesystem::path& path, std::chrono::milliseconds limit);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace shardline
