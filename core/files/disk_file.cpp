#include "core/files/disk_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "core/alignment.h"
#include "core/error.h"

namespace shardline {
namespace {

// Advice for a system error, if there is any.
std::string advice(const std::string& path, int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG: {
      namespace fs = std::filesystem;
      std::error_code unknown;
      const auto space = fs::space(fs::exists(path, unknown) ? fs::path(path) : fs::path(path).parent_path(), unknown);
      return cat(unknown ? "" : cat("; the file system has ", space.available, " bytes left"),
                 "; free some space there or choose another directory");
    }
    case EROFS:
    case EACCES:
    case EPERM:
      return "; make it writable or choose another directory";
    case EIO:
      return "; check the disk or choose another directory";
    default:
      return "";
  }
}

}  // namespace

RunError file_error(const std::string& path, const std::string& what, int error) {
  return RunError(cat(path, ": ", what, ": ", std::strerror(error), advice(path, error)));
}

DiskFile::DiskFile(const std::string& path, int flags) : path_(path), fd_(::open(path.c_str(), flags, 0666)) {
  if (fd_ < 0) throw file_error(path_, "cannot be opened for writing", errno);
}

DiskFile DiskFile::open(const std::string& path) {
  return DiskFile(path, O_WRONLY | O_CLOEXEC);
}

DiskFile DiskFile::create(const std::string& path) {
  return DiskFile(path, O_WRONLY | O_CREAT | O_CLOEXEC);
}

DiskFile DiskFile::open_uncached(const std::string& path) {
  DiskFile file = open(path);
  file.direct_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_DIRECT);
  return file;
}

DiskFile::DiskFile(DiskFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), direct_(std::exchange(other.direct_, -1)) {}

DiskFile::~DiskFile() {
  if (fd_ >= 0) ::close(fd_);
  if (direct_ >= 0) ::close(direct_);
}

// posix_fallocate would write every block if the file system (such as NFS before 4.2) cannot reserve space.
void DiskFile::reserve(int64_t bytes) {
  const auto checked = [&](auto call) {
    int result;
    do result = call();
    while (result != 0 && errno == EINTR);
    if (result != 0 && errno != EOPNOTSUPP) throw file_error(path_, cat(bytes, " bytes cannot be reserved"), errno);
  };
  checked([&] { return ::ftruncate(fd_, bytes); });
  if (bytes > 0) checked([&] { return ::fallocate(fd_, 0, 0, bytes); });
}

void DiskFile::write_at(int64_t offset, std::string_view bytes) {
  constexpr size_t kAligned = 4096;
  if (direct_ >= 0 && offset % kAligned == 0 && is_aligned(bytes.data(), kAligned)) {
    const auto aligned = bytes.substr(0, bytes.size() / kAligned * kAligned);
    write_with(direct_, offset, aligned);
    offset += aligned.size();
    bytes.remove_prefix(aligned.size());
  }
  write_with(fd_, offset, bytes);
}

void DiskFile::write_with(int fd, int64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EINVAL && fd == direct_) {  // this file system requires a different alignment
      ::close(std::exchange(direct_, -1));
      fd = fd_;
      continue;
    }
    if (written < 0) throw file_error(path_, "cannot be written", errno);
    bytes.remove_prefix(written);
    offset += written;
  }
}

void DiskFile::sync() {
  if (::fsync(fd_) != 0) throw file_error(path_, "cannot be flushed to disk", errno);
}

void rename_file(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) throw file_error(from, "cannot be renamed to " + to, errno);
}

void exchange_files(const std::string& one, const std::string& other) {
  if (::renameat2(AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE) == 0) return;
  if (errno != EINVAL && errno != ENOSYS) throw file_error(one, "cannot be exchanged with " + other, errno);
  const std::string aside = other + kReplacedSuffix;
  rename_file(other, aside);
  rename_file(one, other);
  rename_file(aside, one);
}

void write_file(const std::string& path, std::string_view text) {
  const std::string unfinished = path + ".incomplete";
  try {
    auto file = DiskFile::create(unfinished);
    file.reserve(text.size());
    file.write_at(0, text);
    file.sync();
    rename_file(unfinished, path);
  } catch (const RunError&) {
    std::error_code ignored;
    std::filesystem::remove(unfinished, ignored);
    throw;
  }
}

void sync_file(const std::string& path) {
  DiskFile::open(path).sync();
}

void make_directories(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path whole = fs::absolute(path), directory = whole.has_filename() ? whole : whole.parent_path();
  if (fs::is_directory(directory, error) || !directory.has_relative_path()) return;
  const fs::path parent = directory.parent_path();
  make_directories(parent.string());
  fs::create_directory(directory, error);
  if (error) throw file_error(path, "cannot be created", error.value());
  sync_directory(parent.string());
}

void sync_directory(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool done = fd >= 0 && (::fsync(fd) == 0 || errno == EINVAL);  // EINVAL: not supported by this file system
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (!done) throw file_error(path, "cannot be flushed to disk", error);
}

}  // namespace shardline
