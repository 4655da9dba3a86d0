// What this process occupies in main memory, as Linux counts it.
#pragma once
#include <cstdint>

namespace shardline {

struct ProcessMemory {
  int64_t resident = 0;       // bytes now (VmRSS)
  int64_t anonymous = 0;      // of them, those that do not belong to files (RssAnon)
  int64_t peak_resident = 0;  // the largest so far (VmHWM)
};

// From /proc/self/status; zeros where that file does not exist.
ProcessMemory process_memory();

}  // namespace shardline
