#include "core/flight/flight_file.h"

#include <algorithm>
#include <iomanip>
#include <limits>
#include <ostream>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/files/regular_file.h"
#include "core/flight/flight_layout.h"

namespace shardline {
namespace {

constexpr uint32_t kMostRanks = 1 << 20;
constexpr uint64_t kMostRingBytes = uint64_t{1} << 32;

// Terminates the text inside its field and replaces characters that a terminal might interpret, except this one.
template <size_t n>
void make_plain(char (&field)[n], char kept = '\0') {
  field[n - 1] = '\0';
  for (char* c = field; *c != '\0'; ++c)
    if ((*c < ' ' || *c > '~') && *c != kept) *c = '?';
}

// Clears times that are out of range, so that differences of times do not overflow.
void make_time(int64_t& ns) {
  if (ns < 0 || ns > std::numeric_limits<int64_t>::max() / 2) ns = 0;
}

void make_plain(FlightPlace& place) {
  make_time(place.since_ns);
  make_plain(place.instruction);
  make_plain(place.layer);
}

void make_plain(FlightRecord& record) {
  for (int64_t* time : {&record.start_ns, &record.wait_ns, &record.end_ns}) make_time(*time);
  make_plain(record.op);
  make_plain(record.group);
  make_plain(record.dtype);
  make_plain(record.shape);
  make_plain(record.what);
  make_plain(record.place);
}

// The bytes of a table, copied into objects.
template <class T>
std::vector<T> table_of(const std::string& bytes, uint64_t offset, uint64_t count) {
  std::vector<T> table(count);
  if (count > 0) std::memcpy(table.data(), bytes.data() + offset, count * sizeof(T));
  return table;
}

// Reads the whole file after checking that its size matches its header.
std::string read_bytes(const std::string& path, flight::Header& header) {
  const RegularFile file(path);
  const uint64_t size = file.size();
  const auto refuse = [&] { throw DataError(cat(path, " is not a flight ring of this version of shardline")); };
  const std::string begin = file.read(sizeof header);
  if (begin.size() < sizeof header || std::memcmp(begin.data(), flight::kMagic, sizeof flight::kMagic) != 0) refuse();
  std::memcpy(&header, begin.data(), sizeof header);
  if (header.record_bytes != sizeof(FlightRecord) || header.world_size > kMostRanks || header.ranks == 0 ||
      header.first_rank < 0 || uint64_t{header.ranks} + header.first_rank > header.world_size ||
      uint64_t{flight::kMembersPerRank} * header.world_size > header.members)
    refuse();
  const uint64_t stated = flight::Offsets(header).end;
  if (stated != size) throw DataError(cat(path, " has ", size, " bytes, but its header describes ", stated));
  if (size > kMostRingBytes) throw DataError(cat(path, " has ", size, " bytes, more than any flight ring"));
  // A process that wakes up records the gap between its signs of life before its new place. Reading them in the
  // opposite order therefore never shows the new place of a process without also showing the gap.
  const std::string bytes = file.read(size), end = file.read(sizeof header);
  if (bytes.size() < size || end.size() < sizeof header) throw DataError(cat(path, " was truncated"));
  flight::Header last;
  std::memcpy(&last, end.data(), sizeof last);
  header.beat_ns = last.beat_ns;
  header.gap_begin_ns = last.gap_begin_ns;
  header.gap_end_ns = last.gap_end_ns;
  return bytes;
}

std::vector<FlightGroup> groups_in(const std::string& bytes, const flight::Header& header,
                                   const flight::Offsets& offsets) {
  const auto members = table_of<int32_t>(bytes, offsets.members, header.members);
  std::vector<FlightGroup> groups;
  uint64_t used = 0;  // members so far: each belongs to one group
  for (auto& entry : table_of<flight::Group>(bytes, offsets.groups, std::min(header.groups, header.groups_used))) {
    make_plain(entry.name);
    if (entry.first_member < used || uint64_t{entry.first_member} + entry.size > members.size()) continue;
    used = uint64_t{entry.first_member} + entry.size;
    const auto first = members.begin() + entry.first_member;
    FlightGroup group{entry.id, entry.name, {first, first + entry.size}};
    if (std::all_of(group.members.begin(), group.members.end(),
                    [&](int rank) { return rank >= 0 && std::cmp_less(rank, header.world_size); }))
      groups.push_back(std::move(group));
  }
  return groups;
}

std::set<uint64_t> tickets_of(const std::vector<FlightRecord>& records) {
  std::set<uint64_t> tickets;
  for (const FlightRecord& record : records) tickets.insert(record.ticket);
  return tickets;
}

bool is_possible(const FlightRecord& record, uint32_t world_size) {
  return record.ticket != 0 && record.rank >= 0 && std::cmp_less(record.rank, world_size) && record.peer >= -1 &&
         std::cmp_less(record.peer, world_size) && record.elements >= 0 && record.state >= FlightState::running &&
         record.state <= FlightState::failed;
}

}  // namespace

std::optional<uint64_t> FlightFile::begun(uint64_t group_id, int rank, FlightStream stream, int peer) const {
  const auto found = streams.find(flight::stream_key(group_id, rank, stream, peer));
  if (found != streams.end()) return found->second;
  return counts_all ? std::optional<uint64_t>(0) : std::nullopt;
}

FlightFile read_flight_file(const std::string& path) {
  flight::Header header{};
  const std::string bytes = read_bytes(path, header);
  const flight::Offsets offsets(header);
  make_plain(header.host);
  make_plain(header.job);

  FlightFile file{.host = header.host,
                  .job = header.job,
                  .world_size = static_cast<int>(header.world_size),
                  .opened_ns = header.opened_ns,
                  .beat_ns = header.beat_ns,
                  .gap_begin_ns = header.gap_begin_ns,
                  .gap_end_ns = header.gap_end_ns,
                  .groups = groups_in(bytes, header, offsets),
                  .counts_all = (header.flags & flight::kFull) == 0};
  for (int64_t* time : {&file.opened_ns, &file.beat_ns, &file.gap_begin_ns, &file.gap_end_ns}) make_time(*time);
  file.records = table_of<FlightRecord>(bytes, offsets.records, header.capacity);
  const std::set<uint64_t> in_ring = tickets_of(file.records);
  int rank = header.first_rank;
  for (auto& entry : table_of<flight::Rank>(bytes, offsets.ranks, header.ranks)) {
    make_plain(entry.place);
    make_plain(entry.before_gap);
    make_plain(entry.reason, '\n');
    make_time(entry.end_ns);
    if (!in_ring.contains(entry.waits_for.ticket)) file.records.push_back(entry.waits_for);
    const bool known = entry.end >= FlightEnd::none && entry.end <= FlightEnd::cut_off;
    file.ranks.push_back({.rank = rank++,
                          .place = entry.place,
                          .before_gap = entry.before_gap,
                          .end = known ? entry.end : FlightEnd::none,
                          .end_ns = entry.end_ns,
                          .reason = entry.reason});
  }
  for (const auto& entry : table_of<flight::Stream>(bytes, offsets.streams, header.streams))
    if (entry.key != 0) file.streams.emplace(entry.key, entry.begun);
  std::erase_if(file.records, [&](const FlightRecord& record) { return !is_possible(record, header.world_size); });
  for (FlightRecord& record : file.records) make_plain(record);
  std::sort(file.records.begin(), file.records.end(), [](const auto& a, const auto& b) { return a.ticket < b.ticket; });
  return file;
}

void print_flight(std::ostream& out, const std::vector<FlightRecord>& records) {
  for (const FlightRecord& record : records) {
    const char* states[] = {"RUNNING", "done   ", "FAILED "};
    out << states[static_cast<int>(record.state)] << " rank " << record.rank << ' ' << record.op << ' ' << record.group
        << " #" << record.sequence;
    if (record.peer >= 0) out << " peer " << record.peer;
    if (record.dtype[0] != '\0') out << ' ' << record.dtype << ' ' << record.shape;
    if (record.what[0] != '\0') out << " for " << record.what;
    if (record.place.instruction[0] != '\0') out << " in " << record.place.instruction;
    if (record.place.layer[0] != '\0') out << " of " << record.place.layer;
    if (record.end_ns != 0)
      out << ' ' << std::fixed << std::setprecision(3) << 1e-6 * (record.end_ns - record.start_ns) << " ms";
    out << '\n';
  }
}

}  // namespace shardline
