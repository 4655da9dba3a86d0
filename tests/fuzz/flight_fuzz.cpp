// A folder of flight records, as `shardline doctor` reads it. The files rank-0 and rank-1 are made from lines of
// numbers:
//
//   header WORLD FIRST_RANK OPENED BEAT GAP_BEGIN GAP_END FLAGS HOST JOB
//   rank END END_NS SINCE STEP SERIAL INSTRUCTION
//   group ID NAME FIRST_MEMBER MEMBERS...
//   stream GROUP RANK STREAM PEER BEGUN
//   op TICKET SEQUENCE GROUP START WAIT END ELEMENTS STATE RANK PEER NAME STEP SERIAL
//   wait ..., as op: what the rank before waits for
//
// rank-2 is a whole file, except that the first fields of its header and its length are repaired. If there is a file
// "now", the job is still running. Whatever the files contain, there is a diagnosis that names only existing ranks and
// consists of plain characters.
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "core/flight/flight_layout.h"
#include "engine/observe/doctor/diagnosis_text.h"
#include "engine/observe/doctor/job_records.h"
#include "tests/fuzz/fuzz.h"

namespace shardline::flight_fuzz {
namespace {

constexpr uint32_t kMostWorld = 64;  // in the files that are made

// The numbers and words of a line; 0 and "" after its end.
class Line {
 public:
  explicit Line(const std::string& text) : in_(text) {}
  int64_t number() { return std::strtoll(word().c_str(), nullptr, 10); }
  std::string word() {
    std::string word;
    in_ >> word;
    return word;
  }
  bool ended() { return (in_ >> std::ws).eof(); }

 private:
  std::istringstream in_;
};

void read_place(Line& line, FlightPlace& place) {
  place.step = line.number();
  place.serial = line.number();
  fill_text(place.instruction, line.word());
  fill_text(place.layer, line.word());
}

template <class T>
void append(std::string& file, const std::vector<T>& table) {
  file.append(reinterpret_cast<const char*>(table.data()), table.size() * sizeof(T));
  file.resize((file.size() + 7) / 8 * 8);
}

class Ring {
 public:
  explicit Ring(const std::string& text) {
    std::memcpy(header_.magic, flight::kMagic, sizeof header_.magic);
    header_.record_bytes = sizeof(FlightRecord);
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) add(line);
  }

  std::string file() {
    members_.resize(
        std::max(members_.size(), size_t{flight::kMembersPerRank} * std::min(header_.world_size, kMostWorld)));
    header_.capacity = records_.size();
    header_.ranks = ranks_.size();
    header_.groups = groups_.size();
    header_.groups_used = std::max(header_.groups_used, header_.groups);
    header_.members = members_.size();
    header_.streams = streams_.size();
    std::string file(reinterpret_cast<const char*>(&header_), sizeof header_);
    append(file, ranks_);
    append(file, groups_);
    append(file, members_);
    append(file, streams_);
    append(file, records_);
    return file;
  }

 private:
  void add(const std::string& text) {
    Line line(text);
    const std::string kind = line.word();
    if (kind == "header") {
      header_.world_size = line.number();
      header_.first_rank = line.number();
      for (int64_t* time : {&header_.opened_ns, &header_.beat_ns, &header_.gap_begin_ns, &header_.gap_end_ns})
        *time = line.number();
      header_.flags = line.number();
      fill_text(header_.host, line.word());
      fill_text(header_.job, line.word());
    } else if (kind == "rank") {
      flight::Rank& rank = ranks_.emplace_back();
      rank.end = static_cast<FlightEnd>(static_cast<int32_t>(line.number()));
      rank.end_ns = line.number();
      rank.place.since_ns = line.number();
      read_place(line, rank.place);
      rank.before_gap = rank.place;
      fill_text(rank.reason, line.word());
    } else if (kind == "group") {
      flight::Group& group = groups_.emplace_back();
      group.id = line.number();
      fill_text(group.name, line.word());
      group.first_member = line.number();
      for (; !line.ended(); ++group.size) members_.push_back(line.number());
    } else if (kind == "stream") {
      const uint64_t group = line.number();
      const int rank = line.number();
      const auto stream = static_cast<FlightStream>(static_cast<uint32_t>(line.number()));
      const int peer = line.number();
      streams_.push_back({flight::stream_key(group, rank, stream, peer), static_cast<uint64_t>(line.number())});
    } else if (kind == "op" || (kind == "wait" && !ranks_.empty())) {
      FlightRecord& record = kind == "op" ? records_.emplace_back() : ranks_.back().waits_for;
      record.ticket = line.number();
      record.sequence = line.number();
      record.group_id = line.number();
      for (int64_t* number : {&record.start_ns, &record.wait_ns, &record.end_ns, &record.elements})
        *number = line.number();
      record.state = static_cast<FlightState>(static_cast<int32_t>(line.number()));
      record.rank = line.number();
      record.peer = line.number();
      fill_text(record.op, line.word());
      read_place(line, record.place);
      fill_text(record.group, "dp");
      fill_text(record.what, line.word());
      fill_text(record.dtype, line.word());
    }
  }

  flight::Header header_{};
  std::vector<flight::Rank> ranks_;
  std::vector<flight::Group> groups_;
  std::vector<int32_t> members_;
  std::vector<flight::Stream> streams_;
  std::vector<FlightRecord> records_;
};

// A file with a header of this version, and as long as the header states, if that is at most a few pages.
std::string repaired(std::string file) {
  constexpr uint64_t most = 1 << 16;
  flight::Header header{};
  if (file.size() < sizeof header) return file;
  std::memcpy(&header, file.data(), sizeof header);
  std::memcpy(header.magic, flight::kMagic, sizeof header.magic);
  header.record_bytes = sizeof(FlightRecord);
  std::memcpy(file.data(), &header, sizeof header);
  if (const uint64_t end = flight::Offsets(header).end; end <= most) file.resize(end);
  return file;
}

void require_plain(const std::string& text) {
  FUZZ_REQUIRE(!text.empty(), "nothing is said");
  for (const char c : text) FUZZ_REQUIRE(c == '\n' || (c >= ' ' && c <= '~'), text);
}

void check(const JobRecords& job) {
  const Diagnosis diagnosis = diagnose(job);
  FUZZ_REQUIRE(std::ssize(diagnosis.ranks) == job.world_size, diagnosis.ranks.size(), " ranks of ", job.world_size);
  for (const int rank : diagnosis.culprits) FUZZ_REQUIRE(rank >= 0 && rank < job.world_size, rank);
  FUZZ_REQUIRE(diagnosis.culprits.empty() == (diagnosis.cause == Cause::none), to_string(diagnosis.cause));
  require_plain(verdict(diagnosis));
  require_plain(situations_text(diagnosis, 2));
  require_plain(diagnosis_json(diagnosis).dump());
  for (const auto& [number, rank] : job.ranks) {
    for (const FlightRecord& record : rank.file->records) {
      FUZZ_REQUIRE(record.rank >= 0 && record.rank < job.world_size, "a record of rank ", record.rank);
      FUZZ_REQUIRE(record.peer >= -1 && record.peer < job.world_size, "a record with peer ", record.peer);
    }
    std::ostringstream text;
    print_flight(text, rank.records);
    FUZZ_REQUIRE(rank.records.empty() == text.str().empty(), "rank ", number);
    if (!rank.records.empty()) require_plain(text.str());
  }
}

}  // namespace

FUZZ_TARGET(flight) {
  auto files = fuzz::files_of(data, size, {"rank-0", "rank-1", "rank-2", "job-0.json", "killed.json", "now"});
  const bool runs = files.erase("now") == 1;
  for (const char* name : {"rank-0", "rank-1"})
    if (files.contains(name)) files[name] = Ring(files[name]).file();
  if (files.contains("rank-2")) files["rank-2"] = repaired(files["rank-2"]);
  fuzz::fill_folder(files);
  size_t bytes = size;
  for (const auto& [name, file] : files) bytes += file.size();
  std::optional<JobRecords> job;
  if (!fuzz::accepts(bytes, [&] {
        try {
          job = read_job_records(fuzz::folder(), runs);
        } catch (const RunError&) {
          if (files.contains("rank-0") || files.contains("rank-1") || files.contains("rank-2")) throw;
          throw DataError("there are no records");
        }
      }))
    return false;
  FUZZ_REQUIRE(fuzz::accepts(bytes, [&] { check(*job); }), "there is no diagnosis of records that were read");

  if (!job->hosts.empty()) write_job_places(fuzz::folder(), 0, {job->hosts, job->stages, job->job});
  if (job->killed) write_killed(fuzz::folder(), job->job, *job->killed);
  if (!job->hosts.empty()) FUZZ_REQUIRE(recorded_jobs(fuzz::folder()).contains(job->job), job->job);
  const JobRecords again = read_job_records(fuzz::folder(), runs);
  FUZZ_REQUIRE(again.hosts == job->hosts && again.stages == job->stages, "the places change when they are written");
  FUZZ_REQUIRE(!job->killed || (again.killed->rank == job->killed->rank && again.killed->how == job->killed->how),
               "the end changes when it is written");
  return true;
}

}  // namespace shardline::flight_fuzz
