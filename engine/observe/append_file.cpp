#include "engine/observe/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace shardline {

AppendFile::AppendFile(const std::string& path) : path_(path) {
  file_ = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (file_ < 0) throw RunError(cat("cannot open ", path, " for writing: ", std::strerror(errno)));
}

AppendFile::~AppendFile() {
  ::close(file_);
}

void AppendFile::write(std::string_view bytes) {
  const off_t end = ::lseek(file_, 0, SEEK_END);
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int reason = errno;
      [[maybe_unused]] const int result = ::ftruncate(file_, end);  // if that fails, too, nothing more can be done
      throw RunError(
          cat("cannot write ", bytes.size(), " bytes to ", path_, ": ", std::strerror(reason),
              reason == ENOSPC || reason == EDQUOT ? "; free some space there or choose another output_dir" : ""));
    }
    bytes.remove_prefix(written);
  }
}

}  // namespace shardline
