#include "engine/observe/timeline.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>
#include <string_view>
#include <utility>

#include "core/comm/clock.h"
#include "core/error.h"

namespace shardline {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankTimeline::Span, lane, name, start, end, arrow, arrow_begins, detail)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Instruction, op, microbatch, chunk, peer)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(InstructionRecord, instruction, start, end, waited, activation_bytes, process_bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankTimeline, rank, start, end, instructions, spans, complete)

namespace {

using nlohmann::json;
using Span = RankTimeline::Span;

constexpr const char* kLanes[] = {"instructions", "collectives", "messages"};

double seconds_since_epoch() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

int lane_number(const std::string& lane) {
  return std::find(std::begin(kLanes), std::end(kLanes), lane) - std::begin(kLanes);
}

// "F3", or "F3/1" for a chunk other than the first.
std::string short_name(const Instruction& instruction) {
  static const std::map<Op, std::string> letters = {
      {Op::forward, "F"}, {Op::backward_input, "B"}, {Op::backward_weight, "W"}};
  const auto letter = letters.find(instruction.op);
  if (letter == letters.end()) return to_string(instruction.op);
  const std::string chunk = instruction.chunk > 0 ? cat("/", instruction.chunk) : "";
  return cat(letter->second, instruction.microbatch, chunk);
}

Span span_of(const InstructionRecord& record) {
  return {.lane = "instructions",
          .name = short_name(record.instruction),
          .start = record.start,
          .end = record.end,
          .detail = to_string(record.instruction)};
}

// Both ends of a message know its pipeline, its channel ("pp 0>1") and its number there.
std::string arrow_of(const Mesh& mesh, const FlightRecord& flight) {
  const Coordinates coordinates = mesh.at(flight.rank);
  return cat("replica ", coordinates.d, ", t ", coordinates.t, ", ", flight.group, ", number ", flight.sequence);
}

Span span_of(const Mesh& mesh, const FlightRecord& flight, double offset) {
  const std::string op = flight.op, group = flight.group;
  const bool message = op == "send" || op == "recv";
  Span span{.lane = message ? "messages" : "collectives",
            .name = cat(op, ", ", flight.what),
            .start = flight.start_ns * 1e-9 + offset,
            .end = flight.end_ns * 1e-9 + offset,
            .detail = cat(flight.dtype, " ", flight.shape, " in ", group, ", for ", flight.what,
                          flight.place.instruction[0] != 0 ? ", " : "", flight.place.instruction)};
  if (message && group.starts_with("pp ")) {
    span.arrow = arrow_of(mesh, flight);
    span.arrow_begins = op == "send";
  }
  return span;
}

// Spans of a lane may overlap, but the format does not allow that: later ones go to a lane below.
std::vector<int> rows_of(const std::vector<const Span*>& spans) {
  std::vector<double> ends;
  std::vector<int> rows;
  for (const Span* span : spans) {
    size_t row = 0;
    while (row < ends.size() && ends[row] > span->start) ++row;
    if (row == ends.size()) ends.push_back(0);
    ends[row] = span->end;
    rows.push_back(row);
  }
  return rows;
}

}  // namespace

class ChromeTrace::Events {
 public:
  Events(double zero, std::ostream& out) : zero_(zero), out_(out) {
    out_ << R"({"displayTimeUnit":"ms","traceEvents":[)";
  }

  void add(const Mesh& mesh, const RankTimeline& rank) {
    const Coordinates coordinates = mesh.at(rank.rank);
    name("process_name", rank.rank, 0,
         cat("rank ", rank.rank, " (d ", coordinates.d, ", p ", coordinates.p, ", t ", coordinates.t, ")"));
    write({{"ph", "X"},
           {"name", rank.complete ? "step" : "step (records were lost)"},
           {"pid", rank.rank},
           {"tid", 0},
           {"ts", micros(rank.start)},
           {"dur", (rank.end - rank.start) * 1e6}});
    name("thread_name", rank.rank, 0, "step");
    for (const char* lane : kLanes) add_lane(rank, lane);
    add_live_microbatches(rank);
    add_memory(rank);
  }

  void finish() { out_ << "]}\n"; }

 private:
  void write(const json& event) {
    out_ << (is_empty_ ? "" : ",") << event;
    is_empty_ = false;
  }

  double micros(double seconds) const { return (seconds - zero_) * 1e6; }

  void name(const char* what, int pid, int tid, const std::string& text) {
    write({{"ph", "M"}, {"name", what}, {"pid", pid}, {"tid", tid}, {"args", {{"name", text}}}});
  }

  void add_lane(const RankTimeline& rank, const std::string& lane) {
    std::vector<const Span*> spans;
    for (const auto& span : rank.spans)
      if (span.lane == lane) spans.push_back(&span);
    std::stable_sort(spans.begin(), spans.end(), [](auto* a, auto* b) { return a->start < b->start; });
    const auto rows = rows_of(spans);
    for (size_t i = 0; i < spans.size(); ++i) {
      const int tid = 1 + lane_number(lane) * 1000 + rows[i];
      if (named_.insert({rank.rank, tid}).second) name("thread_name", rank.rank, tid, lane);
      add(rank.rank, tid, *spans[i]);
    }
  }

  void add(int pid, int tid, const Span& span) {
    json event = {{"ph", "X"},
                  {"name", span.name},
                  {"cat", span.lane},
                  {"pid", pid},
                  {"tid", tid},
                  {"ts", micros(span.start)},
                  {"dur", (span.end - span.start) * 1e6},
                  {"args", {{"what", span.detail}}}};
    write(event);
    if (span.arrow.empty()) return;
    event.erase("dur");
    event.erase("args");
    event["id"] = span.arrow;
    event["name"] = "message";
    event["ph"] = span.arrow_begins ? "s" : "f";
    if (!span.arrow_begins) {
      event["bp"] = "e";
      event["ts"] = micros(span.end);
    }
    write(event);
  }

  void add_live_microbatches(const RankTimeline& rank) {
    std::set<int> chunks;  // with a backward pass
    for (const auto& record : rank.instructions)
      if (record.instruction.op == Op::backward_input) chunks.insert(record.instruction.chunk);
    int live = 0;
    for (const auto& record : rank.instructions) {
      const auto& [op, microbatch, chunk, peer] = record.instruction;
      const bool begins = op == Op::forward;
      if ((!begins && op != Op::backward_input) || !chunks.contains(chunk)) continue;
      live += begins ? 1 : -1;
      count(rank.rank, "microbatches between forward and backward", begins ? record.start : record.end, live);
    }
  }

  void add_memory(const RankTimeline& rank) {
    for (const auto& record : rank.instructions) {
      count(rank.rank, "bytes of kept activations", record.end, record.activation_bytes);
      if (record.process_bytes > 0)
        count(rank.rank, "bytes of tensors in the process", record.end, record.process_bytes);
    }
  }

  void count(int pid, const char* name, double time, int64_t value) {
    write({{"ph", "C"}, {"name", name}, {"pid", pid}, {"ts", micros(time)}, {"args", {{"live", value}}}});
  }

  double zero_;
  std::ostream& out_;
  bool is_empty_ = true;
  std::set<std::pair<int, int>> named_;
};

RankTimeline rank_timeline(const Mesh& mesh, int rank, const StepRecords& step, double offset) {
  RankTimeline timeline{.rank = rank, .start = step.start + offset, .end = step.end + offset};
  timeline.complete = step.flights.empty() || step.flights.front().ticket <= step.first_flight;
  for (auto record : step.instructions) {
    record.start += offset;
    record.end += offset;
    timeline.instructions.push_back(record);
    timeline.spans.push_back(span_of(record));
  }
  const double of_epoch = offset + steady_seconds() - seconds_since_epoch();
  for (const auto& flight : step.flights)
    if (flight.ticket >= step.first_flight && flight.rank == rank && flight.state == FlightState::done)
      timeline.spans.push_back(span_of(mesh, flight, of_epoch));
  return timeline;
}

std::string to_text(const RankTimeline& timeline) {
  return json(timeline).dump();
}

RankTimeline timeline_from_text(const std::string& text) {
  return json::parse(text).get<RankTimeline>();
}

ChromeTrace::ChromeTrace(const Mesh& mesh, double zero, std::ostream& out)
    : mesh_(mesh), events_(std::make_unique<Events>(zero, out)) {}

ChromeTrace::~ChromeTrace() = default;

void ChromeTrace::add(const RankTimeline& rank) {
  events_->add(mesh_, rank);
}

void ChromeTrace::finish() {
  events_->finish();
}

double idle_fraction(const std::vector<RankTimeline>& ranks) {
  double busy = 0, span = 0;
  for (const auto& rank : ranks) {
    busy += busy_seconds(rank.instructions);
    span += rank.end - rank.start;
  }
  return 1 - busy / span;
}

}  // namespace shardline
