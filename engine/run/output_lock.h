// One process at a time writes to an output directory, or to a directory of checkpoints.
#pragma once
#include <filesystem>
#include <string>

namespace shardline {

// A lock of the file system on a file in the directory. The system releases it when its holder ends in any way. It
// works between hosts if the file system's locks do (NFS, unless it is mounted with nolock).
class OutputLock {
 public:
  // Locks a directory that exists, for a run that writes to output_dir. key: the config's key for the directory. Throws
  // ConfigError if another process holds the lock, with its host, process id, start time and output_dir; RunError if
  // the file cannot be created. On a file system without locks, every process acquires the lock.
  OutputLock(const std::filesystem::path& directory, const std::string& key, const std::string& output_dir);
  ~OutputLock();  // removes the file
  OutputLock(OutputLock&& other) noexcept;
  OutputLock& operator=(OutputLock&&) = delete;

  // Throws RunError if another process has locked the directory since. That happens if the file system's locks do not
  // work, or end with a lost connection: a run that was cut off must not write into the run that replaced it.
  void require_held() const;

  // name of the lock file
  static constexpr const char* kFile = ".lock";

 private:
  bool is_held() const;

  std::filesystem::path path_;
  int fd_ = -1;
  std::string contents_;  // the file's contents, different for each holder
};

// Throws the same ConfigError, but changes nothing.
void check_not_in_use(const std::filesystem::path& directory, const std::string& key);

}  // namespace shardline
