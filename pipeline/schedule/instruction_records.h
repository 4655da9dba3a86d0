// When each instruction of a run ran, and what was kept after it. The timeline shows these records.
#pragma once
#include <cstdint>
#include <vector>

#include "pipeline/schedule/schedule.h"

namespace shardline {

// Times are in seconds of the steady clock.
struct InstructionRecord {
  Instruction instruction;
  double start = 0, end = 0;
  double waited = 0;             // part of that time: for a message or for offloaded activations
  int64_t activation_bytes = 0;  // kept after it, counted as in pipeline/activations/activation_bytes.h
  // Bytes of tensors on the accelerator at that time; without one, of the process's CPU tensors (0 with a different
  // allocator).
  int64_t process_bytes = 0;
};

// Time spent in forward and backward instructions, excluding waits.
inline double busy_seconds(const std::vector<InstructionRecord>& records) {
  double busy = 0;
  for (const auto& record : records)
    if (computes(record.instruction.op)) busy += record.end - record.start - record.waited;
  return busy;
}

}  // namespace shardline
