// Records the instructions of a run one after the other: when they ran, how long they waited, and what was kept after
// them. The flight ring and profilers show the instruction in progress.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/comm/clock.h"
#include "core/device/profiler_range.h"
#include "pipeline/schedule/instruction_records.h"

namespace shardline {

class RunRecorder {
 public:
  void begin(const Instruction& instruction);
  // Calls `wait` and counts its time as waiting of the instruction in progress.
  template <class Wait>
  void waiting(Wait&& wait) {
    const double start = steady_seconds();
    std::forward<Wait>(wait)();
    current_.waited += steady_seconds() - start;
  }
  void end(int64_t activation_bytes);

  // Call it after the last instruction; returns all records in the order of the list.
  std::vector<InstructionRecord> finish();

 private:
  InstructionRecord current_;
  std::optional<ProfilerRange> range_;
  std::vector<InstructionRecord> records_;
};

}  // namespace shardline
