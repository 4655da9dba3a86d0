// What all ranks did in one step, in one file for ui.perfetto.dev or chrome://tracing (Chromium's Trace Event Format):
// a process for each rank; a lane each for instructions, collectives and messages; arrows from sends to receives; and
// counters of the microbatches between forward and backward, the bytes that they keep, and those of the process.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "core/flight/flight_record.h"
#include "core/model/mesh.h"
#include "pipeline/schedule/instruction_records.h"

namespace shardline {

// One rank's records of a step, on its own clocks.
struct StepRecords {
  double start = 0, end = 0;      // by steady_seconds()
  double gradients_complete = 0;  // when norm and optimizer could begin
  std::vector<InstructionRecord> instructions;
  int64_t peak_activation_bytes = 0;
  std::vector<FlightRecord> flights;  // records of this process, oldest first
  uint64_t first_flight = 1;          // ticket of the first one that may belong to the step
};

// One rank's part of the timeline. Times are seconds on rank 0's clock.
struct RankTimeline {
  struct Span {
    std::string lane;  // "instructions", "collectives", "messages"
    std::string name;  // "F3/1", "all_reduce, gradients of h.2"
    double start = 0, end = 0;
    std::string arrow = "";  // the same text for a send and its receive; "" for all others
    bool arrow_begins = false;
    std::string detail = "";  // "float32 [4, 64, 128] in pp, for send_activation, ..."
  };
  int rank = 0;
  double start = 0, end = 0;  // when the step begins and ends
  std::vector<InstructionRecord> instructions;
  std::vector<Span> spans;
  bool complete = true;  // false: the flight ring was too small for the step
};

// offset: see clock_offset().
RankTimeline rank_timeline(const Mesh& mesh, int rank, const StepRecords& step, double offset);

// The form in which a rank's timeline is sent to rank 0.
std::string to_text(const RankTimeline& timeline);
RankTimeline timeline_from_text(const std::string& text);

// Writes the file rank by rank, so that only one of them must be in memory.
class ChromeTrace {
 public:
  // zero: the earliest start of a rank, which becomes time 0. mesh and out must outlive the object.
  ChromeTrace(const Mesh& mesh, double zero, std::ostream& out);
  ~ChromeTrace();

  void add(const RankTimeline& rank);
  void finish();

 private:
  class Events;
  const Mesh mesh_;
  std::unique_ptr<Events> events_;
};

// 1 - (time in forward and backward instructions) / (ranks x span of the step): the idle share according to the spans.
double idle_fraction(const std::vector<RankTimeline>& ranks);

}  // namespace shardline
