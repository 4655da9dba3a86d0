// The main memory that this process occupies, as Linux counts it.
#pragma once
#include <cstdint>

namespace shardline {

struct ProcessMemory {
  int64_t resident = 0;       // bytes now (VmRSS)
  int64_t anonymous = 0;      // the part that does not belong to files (RssAnon)
  int64_t peak_resident = 0;  // maximum so far (VmHWM)
};

// Reads /proc/self/status; zeros if that file does not exist.
ProcessMemory process_memory();

}  // namespace shardline
