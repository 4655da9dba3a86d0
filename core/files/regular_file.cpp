#include "core/files/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace shardline {
namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& reason) {
  throw DataError(cat(path, ": cannot be read: ", reason));
}

}  // namespace

RegularFile::RegularFile(const std::string& path)
    : path_(path), file_{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)} {  // opening a pipe must not block
  struct stat status = {};
  if (file_.fd < 0 || ::fstat(file_.fd, &status) != 0) refuse(path_, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) refuse(path_, "it must be a regular file");
  size_ = status.st_size;
}

std::string RegularFile::read(int64_t count) const {
  std::string bytes(count, '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t more = ::pread(file_.fd, bytes.data() + done, bytes.size() - done, done);
    if (more < 0 && errno == EINTR) continue;
    if (more < 0) refuse(path_, std::strerror(errno));
    if (more == 0) break;  // the file may have been truncated
    done += more;
  }
  bytes.resize(done);
  return bytes;
}

std::string read_regular_file(const std::string& path, int64_t most_bytes) {
  const RegularFile file(path);
  if (file.size() > most_bytes) refuse(path, cat("it has ", file.size(), " bytes; at most ", most_bytes, " are read"));
  return file.read(file.size());
}

}  // namespace shardline
