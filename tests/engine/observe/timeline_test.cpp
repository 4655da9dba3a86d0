#include "engine/observe/timeline.h"

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "engine/observe/timeline_page.h"

#include "tests/catch.h"

namespace shardline::timeline_test {

using nlohmann::json;

namespace {

InstructionRecord ran(Op op, int microbatch, double start, double end, double waited = 0) {
  return {{op, microbatch, 0}, start, end, waited};
}

FlightRecord flight(uint64_t ticket, int rank, const char* op, const char* group, int peer, uint64_t sequence,
                    double start, double end) {
  FlightRecord record{.ticket = ticket, .sequence = sequence, .state = FlightState::done, .rank = rank, .peer = peer};
  std::strncpy(record.op, op, sizeof record.op - 1);
  std::strncpy(record.group, group, sizeof record.group - 1);
  std::strncpy(record.what, "gradients of h.2", sizeof record.what - 1);
  record.start_ns = static_cast<int64_t>(start * 1e9);
  record.end_ns = static_cast<int64_t>(end * 1e9);
  return record;
}

std::string chrome_trace(const Mesh& mesh, const std::vector<RankTimeline>& ranks) {
  std::ostringstream out;
  ChromeTrace trace(mesh, ranks.front().start, out);
  for (const auto& rank : ranks) trace.add(rank);
  trace.finish();
  return out.str();
}

std::vector<json> events(const std::string& trace, const std::string& kind) {
  std::vector<json> found;
  const json file = json::parse(trace);
  for (const auto& event : file.at("traceEvents"))
    if (event.at("ph") == kind) found.push_back(event);
  return found;
}

// Stage 0 sends at 1 s, stage 1 receives; replica 1 does the same.
std::vector<RankTimeline> two_replicas(const Mesh& mesh) {
  std::vector<RankTimeline> ranks;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const bool first = mesh.at(rank).p == 0;
    StepRecords step{.start = 0, .end = 4};
    step.instructions = {ran(Op::forward, 0, first ? 0 : 2, first ? 1 : 3)};
    step.flights = {first ? flight(7, rank, "send", "pp 0>1", 1, 5, 1, 2)
                          : flight(9, rank, "recv", "pp 0>1", 0, 5, 0, 2)};
    step.first_flight = 7;
    ranks.push_back(timeline_from_text(to_text(rank_timeline(mesh, rank, step, 0))));
  }
  return ranks;
}

}  // namespace

TEST_CASE("arrows lead from each send to its own receive") {
  const Mesh mesh("DPT", 2, 2, 1);
  const std::string trace = chrome_trace(mesh, two_replicas(mesh));
  const auto begins = events(trace, "s"), ends = events(trace, "f");
  REQUIRE(begins.size() == 2);
  REQUIRE(ends.size() == 2);
  CHECK(begins[0].at("id") != begins[1].at("id"));
  for (const auto& begin : begins)
    for (const auto& end : ends)
      CHECK((begin.at("id") == end.at("id")) == (end.at("pid") == begin.at("pid").get<int>() + 1));
}

TEST_CASE("kept activations and the process's tensors are counters, and a curve on the page") {
  const Mesh mesh("DPT", 1, 1, 1);
  StepRecords step{.start = 10, .end = 14};
  step.instructions = {ran(Op::forward, 0, 10, 12), ran(Op::backward_input, 0, 12, 14)};
  step.instructions[0].activation_bytes = 3 << 20;
  step.instructions[0].process_bytes = 7 << 20;
  const std::vector<RankTimeline> ranks = {timeline_from_text(to_text(rank_timeline(mesh, 0, step, 0)))};
  std::map<std::string, std::vector<std::pair<double, int64_t>>> counters;
  for (const auto& event : events(chrome_trace(mesh, ranks), "C"))
    counters[event.at("name")].emplace_back(event.at("ts"), event.at("args").at("live"));
  using Points = std::vector<std::pair<double, int64_t>>;
  CHECK(counters.at("bytes of kept activations") == Points{{2e6, 3 << 20}, {4e6, 0}});
  CHECK(counters.at("bytes of tensors in the process") == Points{{2e6, 7 << 20}});
  const Schedule schedule{"one", 1, 1, {0}, {{{Op::forward, 0, 0}, {Op::backward_input, 0, 0}}}};
  const std::string page = timeline_page(mesh, schedule, 1, ranks);
  CHECK(page.find("rank 0: at most 3.0 MiB") != std::string::npos);
  CHECK(page.find("<path fill=") != std::string::npos);
}

TEST_CASE("the idle share is the part of a step in which no instruction computes") {
  const Mesh mesh("DPT", 1, 2, 1);
  StepRecords one{.start = 10, .end = 14}, other{.start = 10, .end = 14};
  one.instructions = {ran(Op::forward, 0, 10, 12), ran(Op::send_activation, 0, 12, 13),
                      ran(Op::backward_input, 0, 13, 14)};
  other.instructions = {ran(Op::forward, 0, 11, 13, 1)};
  CHECK(idle_fraction({rank_timeline(mesh, 0, one, 0), rank_timeline(mesh, 1, other, 0)}) == Approx(1 - 4. / 8));
}

TEST_CASE("other ranks' operations, earlier ones and unfinished ones are left out; a short ring is reported") {
  const Mesh mesh("DPT", 2, 1, 1);
  StepRecords step{.start = 1, .end = 2, .first_flight = 11};
  step.flights = {flight(10, 0, "all_reduce", "rdp", -1, 1, 0, 1), flight(11, 0, "all_reduce", "rdp", -1, 2, 1, 2),
                  flight(12, 1, "all_reduce", "rdp", -1, 2, 1, 2), flight(13, 0, "all_reduce", "rdp", -1, 3, 1, 2)};
  step.flights.back().state = FlightState::running;
  const auto rank = rank_timeline(mesh, 0, step, 0);
  REQUIRE(rank.spans.size() == 1);
  CHECK(rank.spans[0].name == "all_reduce, gradients of h.2");
  CHECK(rank.complete);
  step.first_flight = 9;  // was overwritten
  CHECK_FALSE(rank_timeline(mesh, 0, step, 0).complete);
}

TEST_CASE("spans that overlap are drawn in separate rows, and clocks are aligned") {
  const Mesh mesh("DPT", 1, 1, 1);
  StepRecords step{.start = 1, .end = 2, .first_flight = 1};
  step.instructions = {ran(Op::forward, 0, 1, 1.5), ran(Op::forward, 1, 1.5, 2)};
  step.flights = {flight(1, 0, "all_reduce", "rdp", -1, 1, 1, 3), flight(2, 0, "all_reduce", "rdp", -1, 2, 2, 4),
                  flight(3, 0, "all_reduce", "rdp", -1, 3, 3, 5)};
  std::map<std::string, std::set<int>> rows;
  for (const auto& event : events(chrome_trace(mesh, {rank_timeline(mesh, 0, step, 100)}), "X"))
    rows[event.value("cat", "step")].insert(event.at("tid").get<int>());
  CHECK(rows["instructions"].size() == 1);
  CHECK(rows["collectives"].size() == 2);
  CHECK(rank_timeline(mesh, 0, step, 100).spans[0].start == 101);
}

TEST_CASE("the page shows each rank's boxes above those of the simulation at measured costs") {
  const Mesh mesh("DPT", 1, 2, 1);
  const Schedule schedule = one_forward_one_backward(2, 2, 0);
  std::vector<RankTimeline> ranks;
  for (int stage = 0; stage < 2; ++stage) {
    StepRecords step{.start = 5, .end = 25};
    double now = 5;
    for (const auto& instruction : schedule.instructions[stage])
      if (computes(instruction.op)) {
        step.instructions.push_back({instruction, now, now + 1, 0});
        now += 1;
      }
    ranks.push_back(rank_timeline(mesh, stage, step, 0));
  }
  CHECK(predicted_seconds(mesh, schedule, ranks) == Approx(3 * (2 + 1)));  // (m + p - 1) (F + B + W)
  const std::string page = timeline_page(mesh, schedule, 7, ranks);
  const auto count = [&](const std::string& what) {
    size_t found = 0;
    for (size_t at = page.find(what); at != std::string::npos; at = page.find(what, at + 1)) ++found;
    return found;
  };
  CHECK(count("<svg ") == 3);
  CHECK(count("<title>forward, ") == 4);  // only measured values have a tooltip
  CHECK(count("rank 1 (d 0 p 1 t 0)") == 1);
  CHECK(count("measured, idle 70 %") == 1);
  CHECK(count("predicted, idle 33.3 %") == 1);
  CHECK(count("src=") + count("href=") == 0);
}

}  // namespace shardline::timeline_test
