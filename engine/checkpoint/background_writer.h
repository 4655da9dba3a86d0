// Writes this rank's blocks of a checkpoint to the disk while training continues.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace shardline {

// A range of an existing file, and its pieces, each of which has its own checksum.
struct BlockToWrite {
  std::string path;
  int64_t begin;
  std::string_view bytes;                // must not change from ready() until the work is done
  std::vector<int64_t> piece_ends;       // in the file, ascending; the last one is the block's end
  std::vector<uint64_t> checksums = {};  // by piece: the result
};

class BackgroundWriter {
 public:
  // Starts a thread of low priority that writes each block once it is ready, syncs their files, and then calls `last`
  // (which may throw). Blocks bypass the page cache if the file system allows it: they are not read soon, and copying
  // them to the cache takes time from training. memory: what holds the blocks' bytes and whatever `last` uses; released
  // with the work.
  BackgroundWriter(std::vector<BlockToWrite> blocks, std::shared_ptr<const void> memory, std::function<void()> last);
  // Does not wait, because a rank that fails must end the job, however slow its disk is: unfinished work ends after the
  // current system call, or with the process. Its files remain incomplete.
  ~BackgroundWriter();
  BackgroundWriter(const BackgroundWriter&) = delete;
  BackgroundWriter& operator=(const BackgroundWriter&) = delete;

  // Call it once for each block when its bytes are complete, in any order and from any thread.
  void ready(size_t block);
  bool is_done() const { return work_->done; }
  // The number of bytes that have reached the disk. It grows during the work, at least once per kMostUnsynced bytes.
  int64_t written_bytes() const { return work_->written; }
  // Waits until the work is done, with the time limit of a collective (core/comm/timeouts.h), which starts again
  // whenever bytes have arrived on the disk; `arrived` then receives their total. Throws RunError.
  void wait(const std::function<void(int64_t bytes)>& arrived = {});
  // After wait(): why the work failed; empty if it did not.
  const std::string& error() const { return work_->error; }
  const std::vector<BlockToWrite>& blocks() const { return work_->blocks; }

  static constexpr int64_t kMostUnsynced = 64 << 20;

 private:
  // Shared with the thread, which may outlive the writer.
  struct Work {
    std::vector<BlockToWrite> blocks;
    std::shared_ptr<const void> memory;
    std::function<void()> last;
    std::string error;
    std::atomic<bool> done = false, abandoned = false;
    std::atomic<int64_t> written = 0;
    std::mutex mutex;                 // guards `changed`
    std::condition_variable changed;  // `ready` or `abandoned`
    std::deque<size_t> ready;         // blocks that wait to be written

    void run();
    void write_blocks();
    std::optional<size_t> next_ready();
  };

  std::shared_ptr<Work> work_;
  std::thread thread_;
};

}  // namespace shardline
