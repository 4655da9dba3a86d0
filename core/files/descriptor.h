#pragma once
#include <unistd.h>

namespace shardline {

// Closes a file descriptor, unless it is negative.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace shardline
