#include "models/disk_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "core/error.h"

namespace shardline {

DiskFile::DiskFile(const std::string& path, int flags) : path_(path), fd_(::open(path.c_str(), flags, 0666)) {
  if (fd_ < 0) fail("cannot be opened for writing", errno);
}

DiskFile DiskFile::open(const std::string& path) {
  return DiskFile(path, O_WRONLY | O_CLOEXEC);
}

DiskFile DiskFile::create(const std::string& path) {
  return DiskFile(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC);
}

DiskFile::DiskFile(DiskFile&& other) noexcept : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

DiskFile::~DiskFile() {
  if (fd_ >= 0) ::close(fd_);
}

void DiskFile::fail(const char* what, int error) const {
  throw RunError(cat(path_, ": ", what, ": ", std::strerror(error)));
}

void DiskFile::reserve(int64_t bytes) {
  int error;
  do error = ::posix_fallocate(fd_, 0, bytes);
  while (error == EINTR);
  if (error == 0) return;
  std::error_code unknown;
  const auto space = std::filesystem::space(path_, unknown);
  throw RunError(cat(path_, ": ", bytes, " bytes cannot be reserved: ", std::strerror(error),
                     unknown ? "" : cat("; the file system has ", space.available, " bytes left"),
                     "; make room or choose another output directory"));
}

void DiskFile::write_at(int64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd_, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("cannot be written", errno);
    bytes.remove_prefix(static_cast<size_t>(written));
    offset += written;
  }
}

void DiskFile::sync() {
  if (::fsync(fd_) != 0) fail("cannot be brought onto the disk", errno);
}

void rename_file(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0)
    throw RunError(cat(from, ": cannot be renamed to ", to, ": ", std::strerror(errno)));
}

void write_file(const std::string& path, std::string_view text) {
  const std::string unfinished = path + ".incomplete";
  auto file = DiskFile::create(unfinished);
  file.write_at(0, text);
  file.sync();
  rename_file(unfinished, path);
}

void sync_directory(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool done = fd >= 0 && (::fsync(fd) == 0 || errno == EINVAL);  // EINVAL: this file system has no such thing
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (!done) throw RunError(cat(path, ": cannot be brought onto the disk: ", std::strerror(error)));
}

}  // namespace shardline
