// Files that one process of a host makes for all of its processes.
#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>

namespace shardline {

// Caches of data are made in two passes over its files: one to know whether the cache exists, and one to make or check
// it. Their progress counts each byte in both.
constexpr int64_t kCachePasses = 2;

struct MakeOnce {
  std::filesystem::path path;  // its folder is created
  // How long to wait for another process that makes no progress; 0: three quarters of the limit of a collective.
  std::chrono::milliseconds limit{0};
  std::function<bool()> is_good;  // whether the file exists and is complete
  // Makes the file under its name. While it makes progress that the size of the file's PartialFile does not show, it
  // sets the time of `lock_file` to the current time.
  std::function<void(const std::filesystem::path& lock_file)> make;
  // Called while another process makes the file, with the bytes that it has written and a number that changes while it
  // advances.
  std::function<void(int64_t bytes, int64_t progress)> waiting;
};

// Throws RunError if the folder cannot be created, or if the other process makes no progress.
void make_once(const MakeOnce& options);

}  // namespace shardline
