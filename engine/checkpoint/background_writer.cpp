#include "engine/checkpoint/background_writer.h"

#include <sys/resource.h>
#include <unistd.h>

#include <map>

#include "core/error.h"
#include "core/files/disk_file.h"
#include "engine/checkpoint/manifest.h"

namespace shardline {
namespace {

constexpr int kLowPriority = 10;

}  // namespace

BackgroundWriter::BackgroundWriter(std::vector<BlockToWrite> blocks, std::function<void()> last)
    : blocks_(std::move(blocks)), last_(std::move(last)) {
  thread_ = std::thread([this, rank = current_rank()] {
    set_current_rank(rank);
    ::setpriority(PRIO_PROCESS, ::gettid(), kLowPriority);  // of this thread alone, on Linux
    try {
      write_all();
      if (last_) last_();
    } catch (const std::exception& error) {
      error_ = error.what();
    }
    done_ = true;
  });
}

BackgroundWriter::~BackgroundWriter() {
  wait();
}

void BackgroundWriter::wait() {
  if (thread_.joinable()) thread_.join();
}

void BackgroundWriter::write_all() {
  std::map<std::string, DiskFile> files;
  for (auto& block : blocks_) {
    auto file = files.find(block.path);
    if (file == files.end()) file = files.emplace(block.path, DiskFile::open_uncached(block.path)).first;
    int64_t begin = block.begin;
    for (const int64_t end : block.piece_ends) {
      block.checksums.push_back(checksum(block.bytes.substr(begin - block.begin, end - begin)));
      begin = end;
    }
    file->second.write_at(block.begin, block.bytes);
    written_ += block.bytes.size();
  }
  for (auto& [path, file] : files) file.sync();
}

}  // namespace shardline
