// Records the instructions of a run one after the other: when they ran, how long they waited, what was kept after them.
// The flight ring and profilers show the instruction in progress. On accelerators the times are those of the device's
// work, which the host knows only when the run is over.
#pragma once
#include <c10/core/Device.h>

#include <optional>
#include <utility>
#include <vector>

#include "core/comm/clock.h"
#include "core/device/device_marks.h"
#include "core/device/profiler_range.h"
#include "pipeline/schedule/instruction_records.h"

namespace shardline {

class RunRecorder {
 public:
  // by_host: the host waits for the device after every instruction, so its own clock says when it ran.
  RunRecorder(c10::Device device, bool by_host)
      : device_(device), marks_(by_host ? at::kCPU : device, steady_seconds) {}

  void begin_run();
  void begin(const Instruction& instruction);
  // Calls `wait` and counts its time as waiting of the instruction in progress.
  template <class Wait>
  void waiting(Wait&& wait) {
    marks_.add();
    std::forward<Wait>(wait)();
    marks_.add();
    ++runs_.back().waits;
  }
  void end(int64_t activation_bytes);
  void end_run();

  // Returns the records of the last run in the order of the list, once. On accelerators, waits for the end of the run.
  std::vector<InstructionRecord> take();

 private:
  struct Run {
    InstructionRecord record;  // without times
    int waits = 0;
  };
  c10::Device device_;
  std::vector<Run> runs_;
  DeviceMarks marks_;  // of each run: its beginning, those of its waits and their ends, and its end
  std::optional<ProfilerRange> range_;
};

}  // namespace shardline
