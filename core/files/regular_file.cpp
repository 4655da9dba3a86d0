#include "core/files/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"
#include "core/files/descriptor.h"

namespace shardline {

std::string read_regular_file(const std::string& path, int64_t most_bytes) {
  const auto refuse = [&](const std::string& reason) { throw DataError(cat(path, ": cannot be read: ", reason)); };
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};  // a pipe must not block
  struct stat status = {};
  if (file.fd < 0 || ::fstat(file.fd, &status) != 0) refuse(std::strerror(errno));
  if (!S_ISREG(status.st_mode)) refuse("it must be a regular file");
  if (status.st_size > most_bytes) refuse(cat("it has ", status.st_size, " bytes; at most ", most_bytes, " are read"));
  std::string bytes(status.st_size, '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::read(file.fd, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) refuse(std::strerror(errno));
    if (count == 0) break;  // somebody has made it shorter
    done += count;
  }
  bytes.resize(done);
  return bytes;
}

}  // namespace shardline
