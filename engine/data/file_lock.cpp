#include "engine/data/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "core/error.h"

namespace shardline {

FileLock::FileLock(const std::filesystem::path& path, std::chrono::milliseconds limit) {
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd_ < 0) throw RunError(cat(path.string(), ": cannot be created: ", std::strerror(errno)));
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    if (error == EINTR) continue;
    const bool late = std::chrono::steady_clock::now() >= deadline;
    if (error == EWOULDBLOCK && !late) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      continue;
    }
    ::close(fd_);
    if (error != EWOULDBLOCK) throw RunError(cat(path.string(), ": cannot be locked: ", std::strerror(error)));
    throw RunError(cat(path.string(), ": another process holds this lock for more than ", limit.count(),
                       " ms; if it is a hung run, end it"));
  }
}

FileLock::~FileLock() {
  ::close(fd_);
}

}  // namespace shardline
