// Writes this rank's blocks of a checkpoint to the disk while training goes on.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace shardline {

// A range of a file that exists already, and the pieces of it that get a checksum of their own.
struct BlockToWrite {
  std::string path;
  int64_t begin;
  std::string_view bytes;                // stay as they are until the work is done
  std::vector<int64_t> piece_ends;       // in the file, ascending; the last one is the block's end
  std::vector<uint64_t> checksums = {};  // by piece: the result
};

class BackgroundWriter {
 public:
  // Starts a thread of low priority that writes the blocks, syncs their files, and then calls `last` (which may throw).
  // Blocks bypass the page cache where the file system allows it: they are not read soon, and copying them there takes
  // time from training.
  BackgroundWriter(std::vector<BlockToWrite> blocks, std::function<void()> last);
  ~BackgroundWriter();  // waits
  BackgroundWriter(const BackgroundWriter&) = delete;
  BackgroundWriter& operator=(const BackgroundWriter&) = delete;

  bool is_done() const { return done_; }
  int64_t written_bytes() const { return written_; }
  void wait();
  // After wait(): why the work failed; empty if it did not.
  const std::string& error() const { return error_; }
  const std::vector<BlockToWrite>& blocks() const { return blocks_; }

 private:
  void write_all();

  std::vector<BlockToWrite> blocks_;
  std::function<void()> last_;
  std::string error_;
  std::atomic<bool> done_ = false;
  std::atomic<int64_t> written_ = 0;
  std::thread thread_;
};

}  // namespace shardline
