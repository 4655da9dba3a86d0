#include "pipeline/run/run_recorder.h"

#include "core/device/accelerator.h"
#include "core/flight/flight_ring.h"
#include "core/memory/caching_allocator.h"

namespace shardline {

void RunRecorder::begin_run() {
  runs_.clear();
  marks_.clear();
}

void RunRecorder::begin(const Instruction& instruction) {
  const std::string name = to_string(instruction);
  range_.emplace(name.c_str());
  set_flight_instruction(name);
  runs_.push_back({.record = {.instruction = instruction}});
  marks_.add();
}

void RunRecorder::end(int64_t activation_bytes) {
  marks_.add();
  InstructionRecord& record = runs_.back().record;
  record.activation_bytes = activation_bytes;
  record.process_bytes = is_accelerator(device_) ? device_memory(device_).allocated : memory_totals().live;
  range_.reset();
}

void RunRecorder::end_run() {
  set_flight_instruction("");
}

std::vector<InstructionRecord> RunRecorder::take() {
  const std::vector<double> times = marks_.take();
  std::vector<InstructionRecord> records;
  auto next = times.begin();
  for (auto& [record, waits] : std::exchange(runs_, {})) {
    record.start = *next++;
    for (int i = 0; i < waits; ++i, next += 2) record.waited += next[1] - next[0];
    record.end = *next++;
    records.push_back(record);
  }
  return records;
}

}  // namespace shardline
