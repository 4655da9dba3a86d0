// One process at a time writes to an output directory.
#pragma once
#include <filesystem>

namespace shardline {

// A lock of the file system on a file in the directory. The system releases it when its holder ends, however it ends;
// it holds between hosts where the file system's locks do (NFS, unless it is mounted with nolock).
class OutputLock {
 public:
  // Of a directory that exists. ConfigError where another process has it: names the host, the process and when it
  // started. RunError where the file cannot be made. On a file system without locks nobody is kept out.
  explicit OutputLock(const std::filesystem::path& directory);
  ~OutputLock();  // removes the file
  OutputLock(OutputLock&& other) noexcept;
  OutputLock& operator=(OutputLock&&) = delete;

  // The name of its file.
  static constexpr const char* kFile = ".lock";

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

// The same ConfigError; changes nothing.
void check_not_in_use(const std::filesystem::path& directory);

}  // namespace shardline
