// When each instruction of a run ran, and what was kept after it; the timeline shows these records.
#pragma once
#include <cstdint>
#include <vector>

#include "pipeline/schedule/schedule.h"

namespace shardline {

// Times are seconds of the steady clock.
struct InstructionRecord {
  Instruction instruction;
  double start = 0, end = 0;
  double waited = 0;             // part of it: for a message, or for offloaded activations
  int64_t activation_bytes = 0;  // kept after it, as pipeline/activations/activation_bytes.h counts
  // Bytes of the tensors on the accelerator at that time; without one, of the CPU tensors of the process (0 if another
  // allocator is in use).
  int64_t process_bytes = 0;
};

// Time in forward and backward instructions, without waiting.
inline double busy_seconds(const std::vector<InstructionRecord>& records) {
  double busy = 0;
  for (const auto& record : records)
    if (computes(record.instruction.op)) busy += record.end - record.start - record.waited;
  return busy;
}

}  // namespace shardline
