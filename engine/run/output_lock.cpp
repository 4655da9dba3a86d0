#include "engine/run/output_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <utility>

#include "core/comm/communicator_base.h"
#include "core/error.h"
#include "core/hex.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

// With F_OFD_SETLK the lock belongs to the open file, with F_SETLK it would belong to the process: runs that are
// threads of one process exclude each other, and reading the file elsewhere does not release the lock.
struct flock whole_file() {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

std::string this_process(const std::string& output_dir) {
  char now[32] = {};
  const std::time_t seconds = std::time(nullptr);
  struct tm utc = {};
  std::strftime(now, sizeof now, "%Y-%m-%d %H:%M:%S UTC", ::gmtime_r(&seconds, &utc));
  return cat("process ", ::getpid(), " on host ", host_name(), ", started ", now, ", output_dir ",
             fs::absolute(output_dir).lexically_normal().string(), '\n');
}

[[noreturn]] void refuse(const fs::path& file, const std::string& key) {
  std::ifstream in(file);
  std::string holder;
  std::getline(in, holder);
  throw ConfigError(cat(key, ": ", file.parent_path().string(), " is in use by another run",
                        holder.empty() ? "" : ": " + holder, "; wait until it ends, or choose another ",
                        fs::path(key).filename().string()));
}

// Whether the name still refers to the open file: the previous holder removes the file when it ends.
bool is_named(const fs::path& file, int fd) {
  struct stat opened = {}, named = {};
  return ::fstat(fd, &opened) == 0 && ::stat(file.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

}  // namespace

OutputLock::OutputLock(const fs::path& directory, const std::string& key, const std::string& output_dir)
    : path_(directory / kFile) {
  do {
    if (fd_ >= 0) ::close(fd_);
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd_ < 0)
      throw RunError(cat(key, ": ", path_.string(), " cannot be created: ", std::strerror(errno), "; choose another ",
                         fs::path(key).filename().string()));
    struct flock lock = whole_file();
    if (::fcntl(fd_, F_OFD_SETLK, &lock) == 0 || (errno != EAGAIN && errno != EACCES)) continue;
    ::close(fd_);
    refuse(path_, key);
  } while (!is_named(path_, fd_));
  contents_ = cat(this_process(output_dir), random_digits(), '\n');
  // On a full disk the lock still holds, but other processes cannot see which process holds it.
  if (::ftruncate(fd_, 0) == 0) [[maybe_unused]]
    const auto written = ::pwrite(fd_, contents_.data(), contents_.size(), 0);
}

OutputLock::OutputLock(OutputLock&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), contents_(std::move(other.contents_)) {}

OutputLock::~OutputLock() {
  if (fd_ < 0) return;
  if (is_held()) ::unlink(path_.c_str());
  ::close(fd_);
}

// The file is opened again, so that a network file system checks whether it has changed. A missing or empty file proves
// nothing.
bool OutputLock::is_held() const {
  std::ifstream file(path_, std::ios::binary);
  const std::string found{std::istreambuf_iterator<char>(file), {}};
  return found.empty() || found == contents_;
}

void OutputLock::require_held() const {
  if (!is_held())
    throw RunError(
        cat("another run has taken over ", path_.parent_path().string(),
            ", because the file system did not keep this run's lock; this run ends and leaves the files to the other"));
}

void check_not_in_use(const fs::path& directory, const std::string& key) {
  const fs::path file = directory / OutputLock::kFile;
  const int fd = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  struct flock lock = whole_file();
  const bool known = ::fcntl(fd, F_OFD_GETLK, &lock) == 0;
  ::close(fd);
  if (known && lock.l_type != F_UNLCK) refuse(file, key);
}

}  // namespace shardline
