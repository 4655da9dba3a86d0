#include "engine/checkpoint/background_writer.h"

#include <sys/resource.h>
#include <unistd.h>

#include <map>
#include <utility>

#include "core/comm/timeouts.h"
#include "core/error.h"
#include "core/files/disk_file.h"
#include "engine/checkpoint/manifest.h"

namespace shardline {
namespace {

constexpr int kLowPriority = 10;

// A file of the checkpoint, and how much of what was written to it may not be on the disk yet.
struct OpenFile {
  DiskFile file;
  int64_t unsynced = 0;
};

}  // namespace

BackgroundWriter::BackgroundWriter(std::vector<BlockToWrite> blocks, std::shared_ptr<const void> memory,
                                   std::function<void()> last)
    : work_(std::make_shared<Work>()) {
  work_->blocks = std::move(blocks);
  work_->memory = std::move(memory);
  work_->last = std::move(last);
  thread_ = std::thread([work = work_, rank = current_rank()] {
    set_current_rank(rank);
    ::setpriority(PRIO_PROCESS, ::gettid(), kLowPriority);  // on Linux, this affects only this thread
    work->run();
  });
}

BackgroundWriter::~BackgroundWriter() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(work_->mutex);
    work_->abandoned = true;
  }
  work_->changed.notify_one();
  work_->done ? thread_.join() : thread_.detach();
}

void BackgroundWriter::ready(size_t block) {
  {
    const std::lock_guard lock(work_->mutex);
    work_->ready.push_back(block);
  }
  work_->changed.notify_one();
}

void BackgroundWriter::wait(const std::function<void(int64_t)>& arrived) {
  const TimeLimit limit = timeouts().collective;
  int64_t known = -1;
  for (auto since = std::chrono::steady_clock::now(); !is_done();) {
    const auto now = std::chrono::steady_clock::now();
    if (const int64_t written = written_bytes(); written > known) {
      known = written, since = now;
      if (arrived) arrived(known);
    }
    if (now - since > limit.time)
      throw RunError(cat("the disk that holds the checkpoints has accepted no data for ", limit.time.count() / 1000.0,
                         " s", limit.advice()));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (thread_.joinable()) thread_.join();
}

void BackgroundWriter::Work::run() {
  try {
    write_blocks();
    if (last && !abandoned) last();
  } catch (const std::exception& failure) {
    error = failure.what();
  }
  done = true;
}

// Waits for a block that is ready. Unset: the work was abandoned, for example because blocks could not be copied.
std::optional<size_t> BackgroundWriter::Work::next_ready() {
  std::unique_lock lock(mutex);
  changed.wait(lock, [this] { return abandoned || !ready.empty(); });
  if (abandoned) return {};
  const size_t block = ready.front();
  ready.pop_front();
  return block;
}

void BackgroundWriter::Work::write_blocks() {
  std::map<std::string, OpenFile> files;
  const auto sync = [this](OpenFile& open) {
    open.file.sync();
    written += std::exchange(open.unsynced, 0);
  };
  for (size_t left = blocks.size(); left > 0; --left) {
    const auto next = next_ready();
    if (!next) return;
    auto& block = blocks[*next];
    auto file = files.find(block.path);
    if (file == files.end()) file = files.emplace(block.path, OpenFile{DiskFile::open_uncached(block.path)}).first;
    OpenFile& open = file->second;
    int64_t begin = block.begin;
    for (const int64_t end : block.piece_ends) {
      block.checksums.push_back(checksum(block.bytes.substr(begin - block.begin, end - begin)));
      begin = end;
    }
    open.file.write_at(block.begin, block.bytes);
    // Bytes in the page cache are synced in portions, because a single sync at the end would show no progress.
    open.unsynced += block.bytes.size();
    if (open.file.bypasses_cache())
      written += std::exchange(open.unsynced, 0);
    else if (open.unsynced >= kMostUnsynced)
      sync(open);
  }
  for (auto& [path, open] : files)
    if (!abandoned) sync(open);
}

}  // namespace shardline
