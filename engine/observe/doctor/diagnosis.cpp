#include "engine/observe/doctor/diagnosis.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "core/flight/flight_ring.h"
#include "engine/observe/doctor/agreement.h"
#include "engine/observe/doctor/host_clocks.h"

namespace shardline {
namespace {

constexpr double kSilent = 1e-3 * kFlightGapMilliseconds;
constexpr double kLongWait = 10;  // longer than any wait in a job that works; docs/hangs.md
constexpr double kAtOnce = 0.5;   // longer than the time between two signs of life of a process

bool takes_part(const Wait& wait, int rank) {
  if (!is_message(wait.operation)) return std::ranges::count(wait.members, rank) > 0;
  const int peer = wait.operation.peer;  // may be wrong if the record is damaged
  return peer >= 0 && std::cmp_less(peer, wait.members.size()) && wait.members[peer] == rank;
}

double seconds_between(int64_t from_ns, int64_t to_ns) {
  return from_ns == 0 || to_ns <= from_ns ? 0 : 1e-9 * static_cast<double>(to_ns - from_ns);
}

// The last time at which a rank recorded something.
int64_t last_sign(const JobRecords::Rank& rank) {
  int64_t last = std::max({rank.file->beat_ns, rank.state.place.since_ns, rank.state.end_ns});
  for (const FlightRecord& record : rank.records)
    last = std::max({last, record.start_ns, record.wait_ns, record.end_ns});
  return last;
}

// The time when the first rank failed. Later events show how the job was ended; for example, ranks were woken up.
std::optional<int64_t> first_failure(const JobRecords& job) {
  std::optional<int64_t> first;
  const auto failed_at = [&](int64_t time) { first = std::min(first.value_or(time), time); };
  for (const auto& [rank, records] : job.ranks) {
    if (records.state.end == FlightEnd::failed || records.state.end == FlightEnd::gave_up)
      failed_at(records.state.end_ns);
    for (const FlightRecord& record : records.records)
      if (record.state == FlightState::failed) failed_at(record.end_ns);
  }
  return first;
}

class Doctor {
 public:
  explicit Doctor(const JobRecords& job) : job_(job), moment_(job.now_ns) {
    result_.clocks = align_clocks(job_);
    if (moment_ == 0)
      for (const auto& [rank, records] : job_.ranks) moment_ = std::max(moment_, last_sign(records));
    for (const auto& [rank, records] : job_.ranks)
      for (const FlightGroup& group : records.file->groups) groups_.emplace(group.id, &group);
    const auto failure = first_failure(job_);
    has_failure_ = failure.has_value();
    moment_ = failure.value_or(moment_);
    forget_later();
  }

  Diagnosis diagnose() {
    result_.is_running = job_.now_ns != 0;
    result_.left_out = job_.left_out;
    result_.damaged = job_.damaged;
    for (int rank = 0; rank < job_.world_size; ++rank) result_.ranks.push_back(situation(rank));
    if (find_killed() || find_own_failure()) return result_;
    if (find_ended_first()) return result_;
    const bool found = is_troubled() &&
                       (find_disagreement() || find_culprit() || find_undelivered() || find_circle() || find_silent());
    if (!found) find_ended();
    return result_;
  }

 private:
  void forget_later();
  RankSituation situation(int rank) const;
  std::optional<Wait> wait_of(int rank) const;
  double silence(int rank) const;

  bool find_killed();
  bool find_own_failure();
  bool is_troubled() const;
  bool find_disagreement();
  bool find_culprit();
  bool find_undelivered();
  bool find_circle();
  bool find_silent();
  bool find_ended_first();
  bool find_ended();

  bool blame(Cause cause, std::vector<int> culprits);
  void blame_for(const RankSituation& waiting, int culprit);
  bool has_passed(const FlightRecord& operation, int rank) const;
  bool has_left_behind(const RankSituation& waiting, int sender) const;
  uint64_t missing(const FlightRecord& operation, int rank) const;
  std::vector<const RankSituation*> waiting() const;
  std::map<int, int64_t> ends() const;
  std::vector<int> ended_as(FlightEnd end) const;

  JobRecords job_;  // without what happened after `moment_`
  int64_t moment_;  // when the first rank failed, else when the job ended, or now
  bool has_failure_ = false;
  // By rank, group, stream and peer: the first operation that was begun after `moment_`.
  std::map<std::tuple<int, uint64_t, FlightStream, int>, uint64_t> later_;
  std::map<uint64_t, const FlightGroup*> groups_;
  Diagnosis result_;
};

void Doctor::forget_later() {
  for (auto& [rank, records] : job_.ranks) {
    for (const FlightRecord& record : records.records)
      if (record.start_ns > moment_)
        later_.try_emplace({rank, record.group_id, stream_of(record), is_message(record) ? record.peer : -1},
                           record.sequence);
    std::erase_if(records.records, [&](const FlightRecord& record) { return record.start_ns > moment_; });
    for (FlightRecord& record : records.records) {
      if (record.wait_ns > moment_) record.wait_ns = 0;
      if (record.end_ns <= moment_) continue;
      record.end_ns = 0;
      record.state = FlightState::running;
    }
  }
}

RankSituation Doctor::situation(int rank) const {
  RankSituation found{.rank = rank};
  if (std::cmp_less(rank, job_.hosts.size())) found.host = job_.hosts[rank];
  if (std::cmp_less(rank, job_.stages.size())) found.stage = job_.stages[rank];
  const auto records = job_.ranks.find(rank);
  if (records == job_.ranks.end()) return found;
  const FlightFile::Rank& state = records->second.state;
  found.has_records = true;
  found.host = host_of(job_, rank);
  found.silent_seconds = silence(rank);
  found.place = found.silent_seconds > 0 && state.place.since_ns > moment_ ? state.before_gap : state.place;
  found.seconds_there = seconds_between(found.place.since_ns, moment_);
  found.end = state.end;
  found.reason = state.reason;
  found.wait = wait_of(rank);
  return found;
}

double Doctor::silence(int rank) const {
  const auto found = job_.ranks.find(rank);
  if (found == job_.ranks.end() || found->second.file->beat_ns == 0) return 0;
  const FlightFile& file = *found->second.file;
  const FlightFile::Rank& state = found->second.state;
  if (state.end != FlightEnd::none && state.end_ns <= moment_) return 0;
  const bool woke_later = file.gap_begin_ns < moment_ && file.gap_end_ns > moment_;
  const double seconds = seconds_between(woke_later ? file.gap_begin_ns : last_sign(found->second), moment_);
  return seconds > kSilent ? seconds : 0;
}

// The unfinished operation that the rank has waited for longest.
std::optional<Wait> Doctor::wait_of(int rank) const {
  const JobRecords::Rank& records = job_.ranks.at(rank);
  const FlightRecord* first = nullptr;
  for (const FlightRecord& record : records.records)
    if (record.wait_ns != 0 && record.state != FlightState::done && (!first || record.wait_ns < first->wait_ns))
      first = &record;
  if (!first) return std::nullopt;
  Wait wait{.operation = *first,
            .seconds = seconds_between(first->wait_ns, first->end_ns != 0 ? first->end_ns : moment_)};
  const auto found = groups_.find(first->group_id);
  if (found == groups_.end()) return wait;
  const FlightGroup& group = *found->second;
  wait.members = group.members;
  const bool is_pair = is_message(*first);
  for (int place = 0; std::cmp_less(place, group.members.size()); ++place) {
    const int member = group.members[place];
    if (member == rank || (is_pair && place != first->peer)) continue;
    if (!job_.ranks.contains(member))
      wait.unknown.push_back(member);
    else if (missing(*first, member) > 0)
      wait.not_begun.push_back(member);
    else if (silence(member) > 0)
      wait.silent.push_back(member);
  }
  return wait;
}

// How many operations the rank still has to begin, up to its part of this one; 0 if that is not known.
uint64_t Doctor::missing(const FlightRecord& operation, int rank) const {
  const FlightGroup& group = *groups_.at(operation.group_id);
  const FlightStream stream = counterpart(operation);
  const int peer = counterpart_peer(operation, group);
  auto begun = job_.ranks.at(rank).file->begun(group.id, rank, stream, peer);
  if (const auto later = later_.find({rank, group.id, stream, peer}); begun && later != later_.end())
    begun = std::min(*begun, later->second);
  return !begun || *begun > operation.sequence ? 0 : operation.sequence + 1 - *begun;
}

bool Doctor::blame(Cause cause, std::vector<int> culprits) {
  std::sort(culprits.begin(), culprits.end());
  result_.cause = cause;
  result_.culprits = std::move(culprits);
  return true;
}

bool Doctor::find_killed() {
  if (!job_.killed || job_.killed->rank < 0 || job_.killed->rank >= job_.world_size) return false;
  result_.how = job_.killed->how;
  return blame(Cause::killed, {job_.killed->rank});
}

// Blames the rank that failed first and all ranks with the same message; other failures may result from this one.
bool Doctor::find_own_failure() {
  const JobRecords::Rank* first = nullptr;
  for (const auto& [rank, records] : job_.ranks)
    if (records.state.end == FlightEnd::failed && (!first || records.state.end_ns < first->state.end_ns))
      first = &records;
  if (!first) return false;
  std::vector<int> alike;
  for (const auto& [rank, records] : job_.ranks)
    if (records.state.end == FlightEnd::failed && records.state.reason == first->state.reason) alike.push_back(rank);
  return blame(Cause::failed, alike);
}

bool Doctor::is_troubled() const {
  // Without a failure, shorter times also occur in a healthy job, or in one that is being ended.
  const double silence = has_failure_ ? 0 : kLongWait;
  return std::any_of(result_.ranks.begin(), result_.ranks.end(), [&](const RankSituation& rank) {
    return rank.end == FlightEnd::gave_up || rank.silent_seconds > silence ||
           (rank.wait && (rank.wait->operation.state == FlightState::failed || rank.wait->seconds > kLongWait));
  });
}

bool Doctor::find_disagreement() {
  const auto found = first_disagreement(job_, groups_);
  if (!found) return false;
  result_.operation = found->usual;
  result_.other = found->odd;
  return blame(found->skips ? Cause::skipped : Cause::disagrees, found->odd_ranks);
}

// Returns the ranks that wait, the longest wait first. Waits of processes that have ended do not count.
std::vector<const RankSituation*> Doctor::waiting() const {
  std::vector<const RankSituation*> found;
  for (const RankSituation& rank : result_.ranks)
    if (rank.wait && rank.silent_seconds == 0) found.push_back(&rank);
  std::stable_sort(found.begin(), found.end(),
                   [](const auto* a, const auto* b) { return a->wait->seconds > b->wait->seconds; });
  return found;
}

// Ranks of one stage run the same instructions, in steps that all ranks count alike.
bool Doctor::has_passed(const FlightRecord& operation, int rank) const {
  const RankSituation &there = result_.ranks[rank], &here = result_.ranks[operation.rank];
  if (there.place.step != operation.place.step)
    return operation.place.step > 0 && there.place.step > operation.place.step;
  return there.stage >= 0 && there.stage == here.stage && there.place.serial > operation.place.serial;
}

// Both ends of a message run their collectives in the same order: a sender that waits for the receiver in a collective
// should already have sent everything that the receiver needs to reach it.
bool Doctor::has_left_behind(const RankSituation& waiting, int sender) const {
  const auto& next = result_.ranks[sender].wait;
  return waiting.wait->operation.op == std::string_view("recv") && next && !is_message(next->operation) &&
         std::count(next->not_begun.begin(), next->not_begun.end(), waiting.rank) > 0;
}

void Doctor::blame_for(const RankSituation& waiting, int culprit) {
  result_.operation = waiting.wait->operation;
  result_.waited = waiting.wait->seconds;
  result_.missing = missing(*result_.operation, culprit);
}

// Finds a rank for which others wait and which itself waits for no other rank.
bool Doctor::find_culprit() {
  std::vector<int> culprits, unreachable;
  const RankSituation *blocked = nullptr, *cut_off = nullptr;
  for (const RankSituation* rank : waiting()) {
    const Wait& wait = *rank->wait;
    for (const auto* kind : {&wait.not_begun, &wait.silent})
      for (const int other : *kind) {
        const RankSituation& situation = result_.ranks[other];
        if (situation.wait && situation.silent_seconds == 0) continue;  // it waits for other ranks itself
        if (!blocked) blocked = rank;
        if (blocked == rank && !std::count(culprits.begin(), culprits.end(), other)) culprits.push_back(other);
      }
    for (const int other : wait.unknown) {
      if (!cut_off) cut_off = rank;
      if (!std::count(unreachable.begin(), unreachable.end(), other)) unreachable.push_back(other);
    }
  }
  if (blocked) {
    blame_for(*blocked, culprits.front());
    return blame(
        has_passed(*result_.operation, culprits.front()) && result_.missing > 0 ? Cause::skipped : Cause::behind,
        culprits);
  }
  if (!cut_off) return false;
  result_.operation = cut_off->wait->operation;
  result_.waited = cut_off->wait->seconds;
  return blame(Cause::unreachable, unreachable);
}

bool Doctor::find_undelivered() {
  for (const RankSituation* rank : waiting()) {
    if (rank->wait->members.empty() || !rank->wait->not_begun.empty()) continue;
    result_.operation = rank->wait->operation;
    result_.waited = rank->wait->seconds;
    return blame(Cause::undelivered, {rank->rank});
  }
  return false;
}

// Every rank waits for a rank that waits. A rank that has passed the place where another rank began an operation has
// skipped this operation; otherwise the records do not show which rank is at fault.
bool Doctor::find_circle() {
  const auto all = waiting();
  if (all.empty()) return false;
  for (const RankSituation* rank : all)
    for (const int other : rank->wait->not_begun) {
      const bool skips = has_passed(rank->wait->operation, other);
      if (!skips && !has_left_behind(*rank, other)) continue;
      blame_for(*rank, other);
      result_.other = result_.ranks[other].wait->operation;
      return blame(skips ? Cause::skipped : Cause::behind, {other});
    }
  std::vector<int> path = {all.front()->rank};
  for (;;) {
    const auto& wait = result_.ranks[path.back()].wait;
    if (!wait || wait->not_begun.empty()) return false;
    const int next = wait->not_begun.front();
    const auto before = std::find(path.begin(), path.end(), next);
    if (before != path.end()) {
      blame_for(result_.ranks[path.back()], next);
      return blame(Cause::circle, {before, path.end()});
    }
    path.push_back(next);
  }
}

// No rank waited for the process, but the job ended.
bool Doctor::find_silent() {
  std::vector<int> silent;
  for (const RankSituation& rank : result_.ranks)
    if (rank.silent_seconds > 0) silent.push_back(rank.rank);
  return !silent.empty() && std::cmp_less(silent.size(), job_.ranks.size()) && blame(Cause::silent, silent);
}

// The last time at which each rank recorded something; ranks of one process end together.
std::map<int, int64_t> Doctor::ends() const {
  std::map<const FlightFile*, int64_t> of_process;
  for (const auto& [rank, records] : job_.ranks) {
    int64_t& last = of_process[records.file.get()];
    last = std::max(last, last_sign(records));
  }
  std::map<int, int64_t> found;
  for (const auto& [rank, records] : job_.ranks) found[rank] = of_process[records.file.get()];
  return found;
}

// The ranks that ended in this way; none if the job runs or if ranks have recorded a failure.
std::vector<int> Doctor::ended_as(FlightEnd end) const {
  std::vector<int> found;
  if (result_.is_running || has_failure_) return found;
  for (const auto& [rank, records] : job_.ranks)
    if (records.state.end == end) found.push_back(rank);
  return found;
}

// Finds processes that ended before those of other ranks, which mpirun ends a second later.
bool Doctor::find_ended_first() {
  const auto silent = ended_as(FlightEnd::none);
  if (silent.empty()) return false;
  const auto end = ends();
  const int first = *std::ranges::min_element(silent, {}, [&](int rank) { return end.at(rank); });
  std::vector<int> culprits;
  std::optional<int64_t> next;  // the first end of another rank
  for (const auto& [rank, time] : end)
    if (seconds_between(end.at(first), time) > kAtOnce)
      next = std::min(next.value_or(time), time);
    else if (std::ranges::count(silent, rank) > 0)
      culprits.push_back(rank);
  if (!next) return false;
  result_.before_others = seconds_between(end.at(first), *next);
  const auto blame_if = [&](auto waits_for_first) {
    for (const RankSituation* rank : waiting())
      if (!result_.operation && rank->rank != first && waits_for_first(*rank->wait)) blame_for(*rank, first);
  };
  blame_if([&](const Wait& wait) { return std::ranges::count(wait.not_begun, first) > 0; });
  blame_if([&](const Wait& wait) { return wait.not_begun.empty() && takes_part(wait, first); });
  return blame(Cause::ended, culprits);
}

bool Doctor::find_ended() {
  auto culprits = ended_as(FlightEnd::none);
  if (culprits.empty()) culprits = ended_as(FlightEnd::cut_off);
  return !culprits.empty() && blame(Cause::ended, culprits);
}

}  // namespace

const char* to_string(Cause cause) {
  static constexpr const char* words[] = {"none",        "killed",      "failed", "disagrees", "skipped", "behind",
                                          "unreachable", "undelivered", "circle", "silent",    "ended"};
  return words[static_cast<size_t>(cause)];
}

Diagnosis diagnose(const JobRecords& job) {
  return Doctor(job).diagnose();
}

}  // namespace shardline
