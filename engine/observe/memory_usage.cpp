#include "engine/observe/memory_usage.h"

#include <fstream>
#include <string>

namespace shardline {

ProcessMemory process_memory() {
  ProcessMemory memory;
  std::ifstream status("/proc/self/status");
  std::string key;
  while (status >> key) {
    int64_t kibibytes = 0;
    if (key == "VmRSS:" && status >> kibibytes) memory.resident = kibibytes * 1024;
    if (key == "RssAnon:" && status >> kibibytes) memory.anonymous = kibibytes * 1024;
    if (key == "VmHWM:" && status >> kibibytes) memory.peak_resident = kibibytes * 1024;
    std::getline(status, key);  // the rest of the line
  }
  return memory;
}

}  // namespace shardline
