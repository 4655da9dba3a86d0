#include "pipeline/run/run_recorder.h"

#include "core/comm/flight_ring.h"
#include "core/memory/caching_allocator.h"

namespace shardline {

void RunRecorder::begin(const Instruction& instruction) {
  const std::string name = to_string(instruction);
  range_.emplace(name.c_str());
  set_flight_instruction(name);
  current_ = {.instruction = instruction, .start = steady_seconds()};
}

void RunRecorder::end(int64_t activation_bytes) {
  current_.end = steady_seconds();
  current_.activation_bytes = activation_bytes;
  current_.process_bytes = memory_totals().live;
  records_.push_back(current_);
  range_.reset();
}

std::vector<InstructionRecord> RunRecorder::finish() {
  set_flight_instruction("");
  return std::exchange(records_, {});
}

}  // namespace shardline
