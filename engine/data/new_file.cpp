#include "engine/data/new_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "core/error.h"

namespace shardline {

NewFile::NewFile(const std::filesystem::path& path) : path_(path) {
  std::string name = path.string() + ".partial.XXXXXX";
  fd_ = ::mkstemp(name.data());
  temporary_ = name;
  if (fd_ < 0) fail("created");
  ::fchmod(fd_, 0644);
}

NewFile::~NewFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void NewFile::append(std::string_view bytes) {
  write_at(written_, bytes);
  written_ += bytes.size();
}

void NewFile::overwrite(size_t offset, std::string_view bytes) {
  SL_ASSERT(offset + bytes.size() <= written_, "overwrite at ", offset, " of ", written_);
  write_at(offset, bytes);
}

void NewFile::commit() {
  if (::fsync(fd_) != 0) fail("written to disk");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("renamed");
  ::close(fd_);
  fd_ = -1;
}

void NewFile::write_at(size_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail("written");
    offset += static_cast<size_t>(count);
    bytes.remove_prefix(static_cast<size_t>(count));
  }
}

void NewFile::fail(const char* action) const {
  throw RunError(cat(path_.string(), ": cannot be ", action, " after ", written_, " bytes: ", std::strerror(errno)));
}

}  // namespace shardline
