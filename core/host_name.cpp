#include "core/host_name.h"

#include <unistd.h>

namespace shardline {

std::string host_name() {
  char text[256] = {};
  ::gethostname(text, sizeof text - 1);
  return text;
}

}  // namespace shardline
