// Records the instructions of a run one after another: when they ran, how long they waited, and what was kept after
// them. The flight ring and profilers show the instruction in progress. On accelerators, times are those of the
// device's work, which the host learns only when the run is over.
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
  // by_host: the host waits for the device after every instruction, so the host's clock gives the times.
  RunRecorder(c10::Device device, bool by_host)
      : device_(device), marks_(by_host ? at::kCPU : device, steady_seconds) {}

  void begin_run();
  void begin(const Instruction& instruction);
  // Calls `wait` and counts its duration as waiting time of the current instruction.
  template <class Wait>
  void waiting(Wait&& wait) {
    marks_.add();
    std::forward<Wait>(wait)();
    marks_.add();
    ++runs_.back().waits;
  }
  void end(int64_t activation_bytes);
  void end_run();

  // Returns the records of the last run in list order, only once. On accelerators, waits for the end of the run.
  std::vector<InstructionRecord> take();

 private:
  struct Run {
    InstructionRecord record;  // times are filled in later
    int waits = 0;
  };
  c10::Device device_;
  std::vector<Run> runs_;
  DeviceMarks marks_;  // for each run: its beginning, the beginning and end of each wait, and its end
  std::optional<ProfilerRange> range_;
};

}  // namespace shardline
