#include "engine/observe/doctor/diagnosis.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/flight/flight_layout.h"
#include "engine/observe/doctor/diagnosis_text.h"

#include "tests/catch.h"

namespace shardline::diagnosis_test {
namespace {

using Catch::Contains;
using Catch::StartsWith;

constexpr int64_t kSecond = 1'000'000'000, kStart = 1000 * kSecond;

// A job whose ranks record what the test makes them do, each in its own file.
class Job {
 public:
  explicit Job(int ranks) {
    records_.world_size = ranks;
    for (int rank = 0; rank < ranks; ++rank) {
      files_[rank] = std::make_shared<FlightFile>();
      files_[rank]->world_size = ranks;
      records_.ranks[rank].file = files_[rank];
      records_.ranks[rank].state.rank = rank;
      records_.hosts.push_back(rank < ranks / 2 ? "a" : "b");
      records_.stages.push_back(0);
    }
  }

  // All ranks know of the group.
  FlightGroup group(const std::string& name, std::vector<int> members) {
    const FlightGroup made{++last_group_, name, std::move(members)};
    for (auto& [rank, file] : files_) file->groups.push_back(made);
    return made;
  }

  // The rank begins an operation now, which then completes. Returns the operation, which may be changed.
  FlightRecord& run(int rank, const FlightGroup& group, const char* op, const char* what = "", int64_t elements = 8,
                    int peer = -1) {
    const FlightStream stream = op == std::string("send")   ? FlightStream::send
                                : op == std::string("recv") ? FlightStream::recv
                                                            : FlightStream::collective;
    uint64_t& begun =
        files_[rank]
            ->streams[flight::stream_key(group.id, rank, stream, stream == FlightStream::collective ? -1 : peer)];
    FlightRecord record{.ticket = ++ticket_, .sequence = begun++, .group_id = group.id, .start_ns = now_};
    record.rank = rank;
    record.peer = peer;
    record.elements = elements;
    record.state = FlightState::done;
    record.end_ns = now_ + 1;
    fill_text(record.op, op);
    fill_text(record.group, group.name);
    fill_text(record.dtype, "float32");
    fill_text(record.shape, cat("[", elements, "]"));
    fill_text(record.what, what);
    record.place = records_.ranks[rank].state.place;
    auto& all = records_.ranks[rank].records;
    all.reserve(1000);
    all.push_back(record);
    return all.back();
  }

  // The same, but the rank waits in vain.
  FlightRecord& wait(int rank, const FlightGroup& group, const char* op, const char* what = "", int64_t elements = 8,
                     int peer = -1) {
    FlightRecord& record = run(rank, group, op, what, elements, peer);
    record.state = FlightState::running;
    record.wait_ns = now_;
    record.end_ns = 0;
    return record;
  }

  void place(int rank, int64_t step, const char* instruction, const char* layer = "") {
    FlightPlace& place = records_.ranks[rank].state.place;
    place.since_ns = now_;
    place.step = step;
    ++place.serial;
    fill_text(place.instruction, instruction);
    fill_text(place.layer, layer);
  }

  void end(int rank, FlightEnd end, const char* reason = "") {
    FlightFile::Rank& state = records_.ranks[rank].state;
    state.end = end;
    state.end_ns = now_;
    state.reason = reason;
    for (FlightRecord& record : records_.ranks[rank].records)
      if (record.state == FlightState::running && end == FlightEnd::gave_up) {
        record.state = FlightState::failed;
        record.end_ns = now_;
      }
  }

  void pass(double seconds) { now_ += static_cast<int64_t>(seconds * kSecond); }
  void beat(int rank) { files_[rank]->beat_ns = now_; }
  // Continues the rank after it was stopped.
  void wake(int rank) {
    files_[rank]->gap_begin_ns = files_[rank]->beat_ns;
    files_[rank]->gap_end_ns = now_;
    FlightFile::Rank& state = records_.ranks[rank].state;
    state.before_gap = state.place;
    beat(rank);
  }
  // The clock of the rank's host is, and has always been, ahead by this much.
  void set_clock(int rank, double seconds) {
    const auto ahead = static_cast<int64_t>(seconds * kSecond);
    const auto change = [&](int64_t& time) { time += time == 0 ? 0 : ahead; };
    JobRecords::Rank& changed = records_.ranks[rank];
    for (int64_t* time : {&files_[rank]->beat_ns, &changed.state.place.since_ns, &changed.state.end_ns}) change(*time);
    for (FlightRecord& record : changed.records)
      for (int64_t* time : {&record.start_ns, &record.wait_ns, &record.end_ns, &record.place.since_ns}) change(*time);
  }
  void forget_records(int rank) { records_.ranks[rank].records.clear(); }
  void lose(int rank) { records_.ranks.erase(rank); }
  JobRecords& records() { return records_; }
  int64_t now() const { return now_; }

  Diagnosis diagnosis() const { return diagnose(records_); }

 private:
  JobRecords records_;
  std::map<int, std::shared_ptr<FlightFile>> files_;
  uint64_t last_group_ = 0, ticket_ = 0;
  int64_t now_ = kStart;
};

TEST_CASE("doctor: a job that ended normally has no fault, and so has one that works") {
  Job job(2);
  const FlightGroup world = job.group("world", {0, 1});
  for (int i = 0; i < 3; ++i)
    for (const int rank : {0, 1}) job.run(rank, world, "all_reduce");
  for (const int rank : {0, 1}) job.end(rank, FlightEnd::done);
  CHECK(job.diagnosis().cause == Cause::none);
  CHECK_THAT(verdict(job.diagnosis()), Contains("no fault: all ranks ended normally"));

  Job working(2);
  const FlightGroup all = working.group("world", {0, 1});
  working.wait(0, all, "all_reduce");
  working.place(1, 3, "forward, microbatch 0, chunk 0", "h.2");
  working.pass(2);
  working.records().now_ns = working.now();
  CHECK(working.diagnosis().cause == Cause::none);
  CHECK(working.diagnosis().culprits.empty());
  CHECK_THAT(verdict(working.diagnosis()), Contains("no rank is waiting for longer than 2.0 s"));
}

TEST_CASE(
    "doctor: a rank that stopped is named with its lag and place, even if its records of the group are overwritten") {
  Job job(4);
  const FlightGroup dp = job.group("dp", {0, 1, 2, 3});
  for (int i = 0; i < 5; ++i)
    for (const int rank : {0, 1, 2, 3}) job.run(rank, dp, "all_reduce", "gradients");
  for (const int rank : {0, 1, 3}) job.run(rank, dp, "all_reduce", "gradients of h.8");
  job.place(2, 12, "backward_input, microbatch 1, chunk 0", "h.7");
  job.forget_records(2);
  for (const int rank : {0, 1, 3}) job.wait(rank, dp, "all_reduce", "gradients of h.7");
  job.pass(612);
  for (const int rank : {0, 1, 3}) job.end(rank, FlightEnd::gave_up, "the time limit has passed");
  const Diagnosis found = job.diagnosis();
  CHECK(found.cause == Cause::behind);
  CHECK(found.culprits == std::vector{2});
  CHECK(found.missing == 2);
  CHECK(found.ranks[0].wait->not_begun == std::vector{2});
  CHECK_THAT(
      verdict(found),
      Contains("rank 2 (host b, stage 0) is 2 collectives behind on 'dp'") &&
          Contains("rank 0 waited 612.0 s for all_reduce number 6 of float32 [8] in group 'dp' of ranks 0-3 (for "
                   "gradients of h.7)") &&
          Contains("last seen in backward_input of h.7, microbatch 1, chunk 0, step 12 (for 612.0 s)"));
  CHECK_THAT(situations_text(found, 16), Contains("rank 2 (host b, stage 0): waits for no other rank"));
  CHECK_THAT(situations_text(found, 2), Contains("rank 2") && Contains("and 3 more ranks"));
  const auto json = diagnosis_json(found);
  CHECK(json["cause"] == "behind");
  CHECK(json["behind"] == 2);
  CHECK(json["ranks"][0]["waits_for"]["not_begun_by"] == std::vector{2});
}

TEST_CASE("doctor: a rank that waits for a waiting rank is not to blame") {
  Job job(3);
  const FlightGroup front = job.group("tp", {0, 1}), back = job.group("dp", {1, 2});
  job.wait(0, front, "all_reduce");
  job.pass(1);
  job.wait(1, back, "barrier");
  job.place(2, 1, "reading the batch");
  job.pass(5);
  job.end(0, FlightEnd::gave_up);
  const Diagnosis found = job.diagnosis();
  CHECK(found.cause == Cause::behind);
  CHECK(found.culprits == std::vector{2});
  CHECK(found.operation->group == std::string("dp"));
}

TEST_CASE("doctor: a process without a sign of life is to blame for what it has begun") {
  Job job(2);
  const FlightGroup world = job.group("world", {0, 1});
  for (const int rank : {0, 1}) {
    job.beat(rank);
    job.wait(rank, world, "all_reduce", "loss");
  }
  job.pass(5);
  job.beat(0);
  job.end(0, FlightEnd::gave_up, "the time limit has passed");
  const Diagnosis found = job.diagnosis();
  CHECK(found.cause == Cause::behind);
  CHECK(found.culprits == std::vector{1});
  CHECK_THAT(verdict(found), Contains("rank 1 (host b, stage 0) does not finish its part") &&
                                 Contains("no sign of life for 5.0 s: it was stopped or has ended"));
}

TEST_CASE("doctor: a process that is woken up to be ended, and goes on, was stopped when the others failed") {
  Job job(2);
  const FlightGroup world = job.group("world", {0, 1});
  job.place(1, 3, "forward, microbatch 0, chunk 0", "h.1");
  for (const int rank : {0, 1}) job.beat(rank);
  job.wait(0, world, "all_reduce", "loss");
  job.pass(5);
  job.beat(0);
  job.end(0, FlightEnd::gave_up, "the time limit has passed");
  job.pass(0.5);
  job.wake(1);
  job.place(1, 3, "updating the weights");
  for (int i = 0; i < 3; ++i) job.wait(1, world, "all_reduce", "loss");
  job.pass(0.5);
  job.beat(1);
  const Diagnosis found = job.diagnosis();
  CHECK(found.cause == Cause::behind);
  CHECK(found.culprits == std::vector{1});
  CHECK(found.missing == 1);
  CHECK_FALSE(found.ranks[1].wait);
  CHECK_THAT(verdict(found), Contains("is 1 collective behind on 'world'") &&
                                 Contains("last seen in forward of h.1, microbatch 0, chunk 0, step 3 (for 5.0 s)") &&
                                 Contains("no sign of life for 5.0 s"));
}

TEST_CASE("doctor: the launcher's and a rank's own knowledge come first") {
  Job job(2);
  const FlightGroup world = job.group("world", {0, 1});
  job.wait(0, world, "all_reduce");
  job.place(1, 4, "forward, microbatch 0, chunk 0", "h.1");
  job.beat(1);
  job.pass(3);
  job.records().killed = {1, "was killed by signal 9 (Killed)"};
  CHECK(job.diagnosis().cause == Cause::killed);
  CHECK_THAT(verdict(job.diagnosis()), Contains("rank 1 (host b, stage 0) was killed by signal 9 (Killed)") &&
                                           Contains("last seen in forward of h.1, microbatch 0, chunk 0, step 4") &&
                                           !Contains("it was stopped or has ended"));
  job.records().killed.reset();
  job.end(1, FlightEnd::failed, "disk full");
  job.pass(1);
  job.end(0, FlightEnd::failed, "later");
  CHECK(job.diagnosis().cause == Cause::failed);
  CHECK(job.diagnosis().culprits == std::vector{1});
  CHECK_THAT(verdict(job.diagnosis()), Contains("failed: disk full"));
}

TEST_CASE("doctor: operations of different kinds or sizes at the same position are reported") {
  Job job(4);
  const FlightGroup dp = job.group("dp", {0, 1, 2, 3});
  for (const int rank : {0, 1, 2, 3}) {
    job.run(rank, dp, "barrier");
    job.wait(rank, dp, "all_reduce", "gradients of h.3", rank == 2 ? 1536 : 768);
  }
  job.end(0, FlightEnd::gave_up, "the ranks disagree");
  const Diagnosis found = job.diagnosis();
  CHECK(found.cause == Cause::disagrees);
  CHECK(found.culprits == std::vector{2});
  CHECK_THAT(verdict(found), Contains("disagree about number 1 of group 'dp'") &&
                                 Contains("sizes differ: 768 on rank 3, 1536 on rank 2") && Contains("rank 2 differs"));

  Job pair(2);
  const FlightGroup world = pair.group("world", {0, 1});
  pair.wait(0, world, "all_reduce");
  pair.wait(1, world, "broadcast", "", 8, 0);
  pair.end(0, FlightEnd::gave_up);
  CHECK(pair.diagnosis().cause == Cause::disagrees);
  CHECK(pair.diagnosis().culprits == std::vector{0, 1});  // nobody knows which rank is right
  CHECK_THAT(verdict(pair.diagnosis()), !Contains("differ"));

  Job message(2);
  const FlightGroup pp = message.group("pp 0>1", {0, 1});
  message.run(0, pp, "send", "activation, microbatch 0, chunk 1", 100, 1);
  message.wait(1, pp, "recv", "activation, microbatch 0, chunk 1", 200, 0);
  message.end(1, FlightEnd::gave_up);
  CHECK_THAT(verdict(message.diagnosis()), Contains("sizes differ: 100 on rank 0, 200 on rank 1"));
}

TEST_CASE("doctor: a rank that leaves out an operation is found, with the position") {
  const bool other_sizes = GENERATE(true, false);
  Job job(3);
  const FlightGroup dp = job.group("dp", {0, 1, 2}), tail = job.group("tail", {0, 1, 2});
  for (int layer = 9; layer >= 0; --layer)
    for (const int rank : {0, 1, 2}) {
      if (rank == 1 && layer == 6) continue;
      job.run(rank, dp, "all_reduce", cat("gradients of h.", layer).c_str(), other_sizes ? 10 + layer : 8);
      job.pass(0.01);
    }
  job.wait(1, tail, "all_reduce", "loss");
  for (const int rank : {0, 2}) job.records().ranks[rank].records.back().wait_ns = job.now();
  for (const int rank : {0, 2}) job.records().ranks[rank].records.back().state = FlightState::running;
  job.pass(5);
  for (const int rank : {0, 1, 2}) job.end(rank, FlightEnd::gave_up);
  const Diagnosis found = job.diagnosis();
  CHECK(found.cause == Cause::skipped);
  CHECK(found.culprits == std::vector{1});
  CHECK(found.operation->what == std::string("gradients of h.6"));
  CHECK_THAT(verdict(found), Contains("rank 1 (host b, stage 0) has skipped all_reduce number 3") &&
                                 Contains("it continued with all_reduce number 3") && Contains("gradients of h.5"));
}

TEST_CASE("doctor: of two ranks, the one that is ahead has left something out") {
  for (const int skips : {0, 1}) {
    Job job(2);
    const FlightGroup dp = job.group("dp", {0, 1});
    for (const int rank : {0, 1})
      for (int layer = 3; layer >= 0; --layer)
        if (rank != skips || layer != 2) job.run(rank, dp, "all_reduce", cat("gradients of h.", layer).c_str());
    job.records().ranks[1 - skips].records.back().state = FlightState::running;
    job.records().ranks[1 - skips].records.back().wait_ns = job.now();
    job.pass(5);
    job.end(1 - skips, FlightEnd::gave_up);
    CHECK(job.diagnosis().cause == Cause::skipped);
    CHECK(job.diagnosis().culprits == std::vector{skips});
  }
}

TEST_CASE("doctor: an equal purpose of every operation hides where one is missing, not which rank lacks it") {
  Job job(2);
  const FlightGroup dp = job.group("dp", {0, 1}), pp = job.group("pp", {0, 1});
  for (int i = 0; i < 3; ++i) job.run(0, dp, "all_reduce", "reduce rows");
  for (int i = 0; i < 3; ++i) job.run(1, dp, "all_reduce", "reduce rows");
  for (const int rank : {0, 1}) job.place(rank, 7, "backward_input, microbatch 3, chunk 0", "h.0");
  job.wait(0, dp, "all_reduce", "reduce rows");
  job.place(1, 7, "updating the weights");
  job.wait(1, pp, "all_reduce", "gradient norm");
  job.pass(5);
  for (const int rank : {0, 1}) job.end(rank, FlightEnd::gave_up);
  const Diagnosis found = job.diagnosis();
  CHECK(found.cause == Cause::skipped);  // rank 1 is on the same stage and past the place
  CHECK(found.culprits == std::vector{1});
  CHECK_THAT(verdict(found),
             Contains("has skipped all_reduce number 3") && Contains("it continued with") && Contains("gradient norm"));
  job.records().stages = {0, 1};  // places on different stages cannot be compared
  CHECK(job.diagnosis().cause == Cause::circle);
  CHECK(job.diagnosis().culprits == std::vector{0, 1});
  CHECK_THAT(verdict(job.diagnosis()), Contains("ranks 0-1 wait for each other") &&
                                           Contains("which rank 1 has not begun") &&
                                           Contains("which rank 0 has not begun"));
}

TEST_CASE("doctor: messages that were not sent are distinguished from those that do not arrive") {
  Job job(2);
  const FlightGroup pp = job.group("pp 0>1", {0, 1});
  job.run(0, pp, "send", "activation, microbatch 0, chunk 1", 8, 1);
  job.run(1, pp, "recv", "activation, microbatch 0, chunk 1", 8, 0);
  job.place(0, 2, "forward, microbatch 1, chunk 0", "h.0");
  job.wait(1, pp, "recv", "activation, microbatch 1, chunk 1", 8, 0);
  job.pass(5);
  job.end(1, FlightEnd::gave_up);
  CHECK(job.diagnosis().cause == Cause::behind);
  CHECK(job.diagnosis().culprits == std::vector{0});
  CHECK_THAT(verdict(job.diagnosis()),
             Contains("rank 0 (host a, stage 0) has not sent a message: rank 1 waited 5.0 s for recv number 1 of "
                      "float32 [8] from rank 0 in group 'pp 0>1' (for activation, microbatch 1, chunk 1)"));
  job.run(0, pp, "send", "activation, microbatch 1, chunk 1", 8, 1);
  CHECK(job.diagnosis().cause == Cause::undelivered);
  CHECK(job.diagnosis().culprits == std::vector{1});
  CHECK_THAT(verdict(job.diagnosis()), Contains("the message is stuck"));
}

TEST_CASE("doctor: a receive that is posted ahead does not count as waiting") {
  Job job(2);
  const FlightGroup pp = job.group("pp 0>1", {0, 1}), world = job.group("world", {0, 1});
  FlightRecord& ahead = job.run(1, pp, "recv", "activation", 8, 0);
  ahead.state = FlightState::running;
  ahead.end_ns = 0;
  job.wait(0, world, "barrier");
  job.place(1, 1, "forward, microbatch 0, chunk 0");
  job.pass(5);
  job.end(0, FlightEnd::gave_up);
  CHECK(job.diagnosis().cause == Cause::behind);
  CHECK(job.diagnosis().culprits == std::vector{1});
}

TEST_CASE("doctor: missing records of a host are named, and no other rank is blamed") {
  Job job(4);
  const FlightGroup dp = job.group("dp", {0, 2}), tp = job.group("tp", {0, 1});
  job.wait(0, dp, "all_reduce");
  job.pass(1);
  job.wait(1, tp, "all_reduce");
  job.pass(5);
  for (const int rank : {0, 1}) job.end(rank, FlightEnd::gave_up);
  for (const int rank : {2, 3}) job.lose(rank);
  const Diagnosis found = job.diagnosis();
  CHECK(found.cause == Cause::unreachable);
  CHECK(found.culprits == std::vector{2});
  CHECK_THAT(verdict(found), Contains("in which rank 2 (host b, stage 0) takes part but has no records here"));
  CHECK_THAT(situations_text(found, 16), Contains("no records of these hosts here: b"));
  CHECK(diagnosis_json(found)["hosts_without_records"] == std::vector<std::string>{"b"});
}

TEST_CASE("doctor: of a job that ended without an error, the process that ended first is named") {
  Job job(3);
  const FlightGroup world = job.group("world", {0, 1, 2});
  for (const int rank : {0, 1, 2}) job.beat(rank);
  const bool waits = GENERATE(false, true);
  job.place(1, 7, "forward, microbatch 0, chunk 0", "h.1");
  if (waits) job.wait(1, job.group("tp", {0, 1}), "all_reduce", "activation");
  job.pass(0.1);
  for (const int rank : {0, 2}) job.wait(rank, world, "all_reduce", "loss");
  job.pass(0.9);
  for (const int rank : {0, 2}) job.beat(rank);
  const Diagnosis found = job.diagnosis();
  CHECK(found.cause == Cause::ended);
  CHECK(found.culprits == std::vector{1});
  CHECK_THAT(verdict(found), Contains("rank 1 (host b, stage 0) ended without a message 1.0 s before the others") &&
                                 Contains("last seen in forward of h.1, microbatch 0, chunk 0, step 7 (for 1.0 s)") &&
                                 Contains("; rank 0 waited 0.9 s for its part of all_reduce number 0 of float32 [8] in "
                                          "group 'world' of ranks 0-2 (for loss)"));
  CHECK((verdict(found).find("waiting for all_reduce number 0 of float32 [8] in group 'tp' of ranks 0-1") !=
         std::string::npos) == waits);
  CHECK(diagnosis_json(found)["cause"] == "ended");
}

TEST_CASE("doctor: a rank that waited for a process that ended in an operation that it had begun is named, too") {
  Job job(2);
  const FlightGroup pair = job.group("pp", {0, 1});
  const bool is_message = GENERATE(true, false);
  if (is_message)
    job.wait(1, pair, "recv", "activation", 8, 0);
  else
    job.run(1, pair, "all_reduce", "loss").state = FlightState::running;
  job.pass(0.3);
  job.wait(0, pair, is_message ? "send" : "all_reduce", "", 8, is_message ? 1 : -1);
  job.pass(1);
  job.beat(0);
  const Diagnosis found = job.diagnosis();
  CHECK(found.cause == Cause::ended);
  CHECK(found.culprits == std::vector{1});
  CHECK_THAT(verdict(found),
             Contains(cat("; rank 0 waited 1.0 s for its part of ", is_message ? "send" : "all_reduce")));
}

TEST_CASE("doctor: a process that ended in an operation is not the one that waited for itself") {
  Job job(2);
  const FlightGroup pair = job.group("dp", {0, 1});
  job.wait(1, pair, "all_reduce", "loss");
  job.pass(0.1);
  job.wait(0, pair, "all_reduce", "loss");
  job.pass(0.7);
  job.beat(0);
  const Diagnosis found = job.diagnosis();
  CHECK(found.culprits == std::vector{1});
  CHECK_THAT(verdict(found), Contains("; rank 0 waited 0.7 s for its part of all_reduce"));
}

TEST_CASE("doctor: messages of damaged records whose peers are not in the group are ignored") {
  Job job(3);
  const FlightGroup pair = job.group("pp", {0, 1});
  job.place(1, 7, "forward, microbatch 0, chunk 0", "h.1");
  job.pass(0.3);
  job.wait(0, pair, "send", "", 8, GENERATE(-1, 2));
  job.pass(1);
  job.beat(0);
  job.beat(2);
  const Diagnosis found = job.diagnosis();
  CHECK(found.culprits == std::vector{1});
  CHECK(verdict(found).find("its part of") == std::string::npos);
}

TEST_CASE("doctor: clocks that differ do not make the processes of a host seem to end first") {
  const double ahead = GENERATE(-5.0, 0.0, 5.0);
  Job job(4);
  const FlightGroup world = job.group("world", {0, 1, 2, 3});
  for (int step = 0; step < 3; ++step) {
    for (const int rank : {0, 1, 2, 3}) job.run(rank, world, "all_reduce", "loss");
    job.pass(0.1);
  }
  for (const int rank : {0, 1, 2, 3}) job.beat(rank);
  job.place(1, 7, "forward, microbatch 0, chunk 0", "h.1");
  for (const int rank : {0, 2, 3}) job.wait(rank, world, "all_reduce", "loss");
  job.pass(1);
  for (const int rank : {0, 2, 3}) job.beat(rank);
  for (const int rank : {2, 3}) job.set_clock(rank, ahead);
  const Diagnosis found = job.diagnosis();
  CHECK(found.cause == Cause::ended);
  CHECK(found.culprits == std::vector{1});
  CHECK_THAT(verdict(found), StartsWith("rank 1 (host a, stage 0) ended without a message 1.0 s before the others"));
  CHECK(found.clocks.size() == (ahead == 0 ? 0 : 1));
  const std::string note = cat("the clock of host b is 5.0 s ", ahead > 0 ? "ahead of" : "behind", " that of host a; ");
  CHECK((situations_text(found, 16).find(note) != std::string::npos) == (ahead != 0));
  CHECK(diagnosis_json(found).contains("clocks") == (ahead != 0));
}

TEST_CASE("doctor: an error that all ranks throw is not attributed to one of them") {
  Job job(4);
  for (const int rank : {2, 0, 1})
    job.end(rank, FlightEnd::failed, "/training/optim: has the state of another optimizer");
  job.end(3, FlightEnd::failed, "disk full");
  const Diagnosis found = job.diagnosis();
  CHECK(found.cause == Cause::failed);
  CHECK(found.culprits == std::vector{0, 1, 2});
  CHECK(verdict(found) == "ranks 0-2 failed: /training/optim: has the state of another optimizer");
}

TEST_CASE("doctor: if a process was killed, long waits of the working job before that are not blamed") {
  Job job(3);
  const FlightGroup world = job.group("world", {0, 1, 2});
  job.wait(0, world, "all_reduce", "loss");
  job.pass(30);
  job.beat(2);
  job.pass(1);
  for (const int rank : {0, 1}) job.beat(rank);
  CHECK(job.diagnosis().cause == Cause::ended);
  CHECK(job.diagnosis().culprits == std::vector{2});
}

TEST_CASE("doctor: a job whose processes end at the same time was ended from outside") {
  Job job(3);
  for (const int rank : {0, 1, 2}) {
    job.place(rank, 7, "forward, microbatch 0, chunk 0", "h.1");
    job.pass(0.2);
    job.beat(rank);
  }
  const auto check = [&](const std::string& words) {
    const Diagnosis found = job.diagnosis();
    CHECK(found.cause == Cause::ended);
    CHECK(found.culprits == std::vector{0, 1, 2});
    CHECK_THAT(verdict(found), StartsWith("ranks 0-2 ended " + words) &&
                                   Contains("; rank 0 (host a, stage 0): last seen in forward of h.1"));
  };
  check("without a message when the whole job ended");
  for (const int rank : {0, 1, 2}) job.end(rank, FlightEnd::cut_off, "the connection to the launcher has ended");
  check("because the launcher had ended, ended the job, or could not be reached");
  job.records().now_ns = job.now();
  CHECK(job.diagnosis().cause == Cause::none);
}

TEST_CASE("doctor: threads end with their process, however long each has waited") {
  Job job(2);
  job.wait(0, job.group("world", {0, 1}), "all_reduce");
  job.records().ranks[1].file = job.records().ranks[0].file;
  job.pass(3);
  job.place(1, 1, "forward");
  CHECK(job.diagnosis().cause == Cause::ended);
  CHECK(job.diagnosis().culprits == std::vector{0, 1});
}

TEST_CASE("doctor: a process without a sign of life, for which nobody waits, is named while the job runs") {
  Job job(2);
  const FlightGroup world = job.group("world", {0, 1});
  for (const int rank : {0, 1}) job.beat(rank);
  job.wait(1, world, "all_reduce");
  job.pass(12);
  job.beat(0);
  job.place(0, 1, "forward");
  job.records().now_ns = job.now();
  const Diagnosis found = job.diagnosis();
  CHECK(found.cause == Cause::silent);
  CHECK(found.culprits == std::vector{1});
}

TEST_CASE("doctor: a message of several lines keeps its line breaks") {
  Job job(2);
  job.end(1, FlightEnd::failed, "the config is wrong:\n/model: is missing\n/data: is missing");
  CHECK(verdict(job.diagnosis()) ==
        "rank 1 (host b, stage 0) failed: the config is wrong:\n  /model: is missing\n  /data: is missing");
  CHECK_THAT(situations_text(job.diagnosis(), 16), Contains("  rank 1 (host b, stage 0): failed: the config is wrong:\n"
                                                            "      /model: is missing\n      /data: is missing\n"));
  CHECK(diagnosis_json(job.diagnosis())["ranks"][1]["reason"] ==
        "the config is wrong:\n/model: is missing\n/data: is missing");
}

TEST_CASE("doctor: records with arbitrary contents lead to an answer") {
  // Groups without a description, peers and members that do not exist, a wait for an operation that no record has.
  Job job(2);
  const FlightGroup unknown{99, "nobody's", {0, 1}};
  job.wait(0, unknown, "recv", "", 8, 1);
  job.wait(1, job.group("narrow", {1}), "recv", "", 8, 1);
  job.records().ranks[0].records.push_back({.ticket = 1, .group_id = 1, .rank = 0, .peer = 1});
  job.records().hosts = {"only one"};
  job.pass(20);
  for (const int rank : {0, 1}) job.end(rank, FlightEnd::gave_up);
  const Diagnosis found = job.diagnosis();
  CHECK_FALSE(verdict(found).empty());
  CHECK_FALSE(situations_text(found, 1).empty());
  CHECK_FALSE(diagnosis_json(found).dump().empty());
}

}  // namespace
}  // namespace shardline::diagnosis_test
