#include "engine/observe/doctor/agreement.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

namespace shardline {
namespace {

// The properties on which ranks must agree; for a broadcast also its root.
auto request_of(const FlightRecord& record) {
  const std::string op = is_message(record) ? "message" : record.op;
  return std::tuple(op, std::string(record.dtype), record.elements, op == "broadcast" ? record.peer : -1);
}

auto purpose_of(const FlightRecord& record) {
  return std::pair(request_of(record), std::string(record.what));
}

// Operations of all ranks that are numbered together: group, and for messages sender and receiver in it.
using Stream = std::tuple<uint64_t, int, int>;
using Requests = std::map<int, const FlightRecord*>;  // by rank in the world
using Numbered = std::map<uint64_t, Requests>;        // by sequence

Stream joint_stream(const FlightRecord& record, const FlightGroup& group) {
  if (!is_message(record)) return {group.id, -1, -1};
  const auto found = std::find(group.members.begin(), group.members.end(), record.rank);
  const int me = found - group.members.begin();
  return record.op == std::string_view("send") ? Stream{group.id, me, record.peer} : Stream{group.id, record.peer, me};
}

int64_t begin_of(const Requests& requests) {
  int64_t first = requests.begin()->second->start_ns;
  for (const auto& [rank, record] : requests) first = std::min(first, record->start_ns);
  return first;
}

// The ranks whose key differs from that of the majority; all ranks, if no key has a majority. Empty if all keys are
// equal.
template <class Key>
std::vector<int> odd_ranks(const Requests& requests, const Key& key_of) {
  std::map<decltype(key_of(*requests.begin()->second)), std::vector<int>> by_key;
  for (const auto& [rank, record] : requests) by_key[key_of(*record)].push_back(rank);
  if (by_key.size() == 1) return {};
  const auto most = std::max_element(by_key.begin(), by_key.end(),
                                     [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  std::vector<int> odd;
  for (const auto& [rank, record] : requests)
    if (2 * most->second.size() <= requests.size() || key_of(*record) != most->first) odd.push_back(rank);
  return odd;
}

// Whether `rank` did as operation `number` what `other` did as the next one.
bool is_ahead(const Numbered& numbered, uint64_t number, int rank, int other) {
  const auto next = numbered.find(number + 1);
  if (next == numbered.end() || !next->second.contains(other)) return false;
  const FlightRecord &mine = *numbered.at(number).at(rank), &theirs = *numbered.at(number).at(other);
  return purpose_of(mine) != purpose_of(theirs) && purpose_of(mine) == purpose_of(*next->second.at(other));
}

// Rank `odd` compared with the others, one of which is `usual`.
Disagreement between(const Numbered& numbered, uint64_t number, std::vector<int> odd) {
  const Requests& requests = numbered.at(number);
  const auto is_odd = [&](int rank) { return std::count(odd.begin(), odd.end(), rank) > 0; };
  int usual = requests.begin()->first;
  for (const auto& [rank, record] : requests)
    if (!is_odd(rank)) usual = rank;
  int other = odd.front() != usual ? odd.front() : odd.back();
  Disagreement found;
  // With two ranks each is odd: the one that is ahead has left something out.
  if (is_odd(usual) && odd.size() == 2 && is_ahead(numbered, number, usual, other)) std::swap(usual, other);
  found.skips = is_ahead(numbered, number, other, usual);
  found.odd_ranks = found.skips && is_odd(usual) ? std::vector{other} : odd;
  found.usual = *requests.at(usual);
  found.odd = *requests.at(other);
  return found;
}

}  // namespace

bool is_message(const FlightRecord& record) {
  return record.op == std::string_view("send") || record.op == std::string_view("recv");
}

FlightStream stream_of(const FlightRecord& record) {
  if (!is_message(record)) return FlightStream::collective;
  return record.op == std::string_view("send") ? FlightStream::send : FlightStream::recv;
}

FlightStream counterpart(const FlightRecord& record) {
  const FlightStream own = stream_of(record);
  if (own == FlightStream::collective) return own;
  return own == FlightStream::send ? FlightStream::recv : FlightStream::send;
}

int counterpart_peer(const FlightRecord& record, const FlightGroup& group) {
  if (!is_message(record)) return -1;
  return std::find(group.members.begin(), group.members.end(), record.rank) - group.members.begin();
}

std::optional<Disagreement> first_disagreement(const JobRecords& job,
                                               const std::map<uint64_t, const FlightGroup*>& groups) {
  std::map<Stream, Numbered> streams;
  for (const auto& [rank, records] : job.ranks)
    for (const FlightRecord& record : records.records)
      if (const auto group = groups.find(record.group_id); group != groups.end())
        streams[joint_stream(record, *group->second)][record.sequence][rank] = &record;

  std::optional<Disagreement> first;
  int64_t begin = 0;
  for (const auto& [stream, numbered] : streams)
    for (const auto& [number, requests] : numbered) {
      const std::vector<int> different = odd_ranks(requests, request_of);
      // An operation for another purpose counts as extra or missing only if it is what the others do next.
      const std::vector<int> shifted = different.empty() ? odd_ranks(requests, purpose_of) : std::vector<int>{};
      if (different.empty() && shifted.empty()) continue;
      const int64_t at = begin_of(requests);
      if (first && begin <= at) break;
      const Disagreement found = between(numbered, number, different.empty() ? shifted : different);
      if (different.empty() && !found.skips) continue;
      first = found;
      begin = at;
      break;
    }
  return first;
}

}  // namespace shardline
