#include "engine/data/cache/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "core/error.h"

namespace shardline {

FileLock::FileLock(const std::filesystem::path& path) : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
  if (fd_ < 0) throw RunError(cat(path.string(), ": cannot be created: ", std::strerror(errno)));
}

FileLock::FileLock(const std::filesystem::path& path, std::chrono::milliseconds limit, const Progress& of_holder)
    : FileLock(path) {
  using Clock = std::chrono::steady_clock;
  auto deadline = Clock::now() + limit;
  int64_t progress = -1;
  while (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    if (error == EINTR) continue;
    if (error != EWOULDBLOCK) throw RunError(cat(path.string(), ": cannot be locked: ", std::strerror(error)));
    if (const int64_t now = of_holder(); now != progress) {
      progress = now;
      deadline = Clock::now() + limit;
    }
    if (Clock::now() >= deadline) {
      throw RunError(cat(path.string(), ": another process holds this lock and has made no progress for ",
                         limit.count() / 1000., " s; if it is a hung run, end it"));
    }
    std::this_thread::sleep_for(std::min<std::chrono::milliseconds>(limit / 4, std::chrono::milliseconds(200)));
  }
}

FileLock::~FileLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace shardline
