#include "engine/observe/doctor/host_clocks.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <string_view>
#include <utility>

namespace shardline {
namespace {

constexpr int64_t kAgree = 10'000'000;  // ns: clocks that a network keeps together

// When the ranks of a host took part in a collective, by the host's clock.
struct Part {
  int64_t last_start = std::numeric_limits<int64_t>::min(), first_end = std::numeric_limits<int64_t>::max();
};
using Parts = std::map<std::string, Part>;  // by host

// The least and the most nanoseconds by which a clock is ahead of the reference.
struct Bounds {
  int64_t least = std::numeric_limits<int64_t>::min(), most = std::numeric_limits<int64_t>::max();
};

// Whether no rank can finish this operation before all ranks have begun it.
bool joins_all(const FlightRecord& record) {
  constexpr std::array<std::string_view, 5> kJoining = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all",
                                                        "barrier"};
  const bool is_exchange = record.elements > 0 || record.op == std::string_view("barrier");
  return is_exchange && record.state == FlightState::done && record.start_ns != 0 && record.end_ns != 0 &&
         std::ranges::find(kJoining, std::string_view(record.op)) != kJoining.end();
}

std::map<std::pair<uint64_t, uint64_t>, Parts> collectives_of(const JobRecords& job) {
  std::map<std::pair<uint64_t, uint64_t>, Parts> collectives;  // by group and number
  for (const auto& [rank, records] : job.ranks)
    for (const FlightRecord& record : records.records) {
      if (!joins_all(record)) continue;
      Part& part = collectives[{record.group_id, record.sequence}][host_of(job, rank)];
      part.last_start = std::max(part.last_start, record.start_ns);
      part.first_end = std::min(part.first_end, record.end_ns);
    }
  return collectives;
}

std::string reference_of(const JobRecords& job) {
  for (const auto& [rank, records] : job.ranks)
    if (job.now_ns != 0 && host_of(job, rank) == job.now_host) return job.now_host;
  return job.ranks.empty() ? "" : host_of(job, job.ranks.begin()->first);
}

// Limits times so that differences do not overflow, as the reader of the files does.
void shift(int64_t& time, int64_t ahead) {
  if (time != 0) time = std::clamp(time - ahead, int64_t{1}, std::numeric_limits<int64_t>::max() / 2);
}

void shift(JobRecords::Rank& rank, int64_t ahead) {
  for (int64_t* time : {&rank.state.place.since_ns, &rank.state.before_gap.since_ns, &rank.state.end_ns})
    shift(*time, ahead);
  for (FlightRecord& record : rank.records)
    for (int64_t* time : {&record.start_ns, &record.wait_ns, &record.end_ns, &record.place.since_ns})
      shift(*time, ahead);
}

}  // namespace

const std::string& host_of(const JobRecords& job, int rank) {
  const bool is_known = std::cmp_less(rank, job.hosts.size()) && !job.hosts[rank].empty();
  return is_known ? job.hosts[rank] : job.ranks.at(rank).file->host;
}

std::vector<ClockDifference> align_clocks(JobRecords& job) {
  const std::string reference = reference_of(job);
  std::map<std::string, Bounds> bounds;
  for (const auto& [number, parts] : collectives_of(job)) {
    const auto there = parts.find(reference);
    if (there == parts.end()) continue;
    for (const auto& [host, part] : parts) {
      if (host == reference) continue;
      Bounds& of_host = bounds[host];
      of_host.least = std::max(of_host.least, part.last_start - there->second.first_end);
      of_host.most = std::min(of_host.most, part.first_end - there->second.last_start);
    }
  }
  std::vector<ClockDifference> differences;
  for (const auto& [host, of_host] : bounds) {
    if (of_host.least <= kAgree && of_host.most >= -kAgree) continue;
    if (of_host.least > of_host.most) continue;  // a clock was set in the meantime: no difference holds for all records
    const int64_t ahead = of_host.least / 2 + of_host.most / 2;
    differences.push_back({host, reference, 1e-9 * static_cast<double>(ahead)});
    std::map<const FlightFile*, std::shared_ptr<const FlightFile>> files;  // ranks that are threads share one
    for (auto& [rank, records] : job.ranks) {
      if (host_of(job, rank) != host) continue;
      auto& file = files[records.file.get()];
      if (!file) {
        auto changed = std::make_shared<FlightFile>(*records.file);
        for (int64_t* time : {&changed->beat_ns, &changed->gap_begin_ns, &changed->gap_end_ns}) shift(*time, ahead);
        file = std::move(changed);
      }
      records.file = file;
      shift(records, ahead);
    }
  }
  return differences;
}

}  // namespace shardline
