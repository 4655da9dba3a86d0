#include "core/flight/flight_ring.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>

#include "core/error.h"
#include "core/flight/flight_file.h"
#include "core/flight/flight_layout.h"

#include "tests/catch.h"

namespace shardline::flight_ring_test {
namespace {

const FlightGroup kGroup{17, "dp", {1, 3}};

FlightRecord record_of(const char* op, uint64_t sequence, int peer = -1) {
  FlightRecord record;
  fill_text(record.op, op);
  record.sequence = sequence;
  record.rank = 3;
  record.peer = peer;
  return record;
}

struct TemporaryFile {
  std::string path = (std::filesystem::temp_directory_path() / cat("flight_ring_test_", ::getpid())).string();
  ~TemporaryFile() { std::filesystem::remove(path); }
};

FlightRing::Options one_of_four(const std::string& path, int capacity = 8) {
  return {.path = path, .job = "job a", .capacity = capacity, .first_rank = 3, .ranks = 1, .world_size = 4};
}

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

TEST_CASE("flight ring: keeps the latest records, oldest first") {
  FlightRing ring({.capacity = 4});
  for (uint64_t i = 0; i < 10; ++i) ring.end(ring.begin(record_of("send", i), kGroup), FlightState::done);
  const auto records = ring.records();
  REQUIRE(records.size() == 4);
  for (size_t i = 0; i < 4; ++i) {
    CHECK(records[i].sequence == 6 + i);
    CHECK(records[i].state == FlightState::done);
    CHECK(records[i].end_ns >= records[i].start_ns);
    CHECK(records[i].group == std::string("dp"));
    CHECK(records[i].group_id == 17);
  }
}

TEST_CASE("flight ring: the end of an overwritten record changes nothing") {
  FlightRing ring({.capacity = 2});
  const uint64_t old = ring.begin(record_of("old", 0), kGroup);
  ring.begin(record_of("new", 1), kGroup);
  ring.begin(record_of("new", 2), kGroup);
  ring.end(old, FlightState::failed);
  ring.wait(old);
  for (const FlightRecord& record : ring.records()) {
    CHECK(record.state == FlightState::running);
    CHECK(record.wait_ns == 0);
  }
}

TEST_CASE("flight ring: has room for the records of each rank") {
  FlightRing ring({.capacity = 4, .ranks = 2, .world_size = 2});
  for (uint64_t i = 0; i < 10; ++i) ring.begin(record_of("send", i), kGroup);
  CHECK(ring.records().size() == 8);
}

TEST_CASE("flight ring: the operation for which a rank waits is known even if its record has been overwritten") {
  const TemporaryFile file;
  FlightRing ring(one_of_four(file.path, 2));
  FlightRecord waits_for = record_of("recv", 5, 0);
  waits_for.ticket = ring.begin(waits_for, kGroup);
  waits_for.start_ns = 7;
  const auto read = [&] { return read_flight_file(file.path).records; };
  const auto forget = [&] {
    for (uint64_t i = 0; i < 2; ++i) ring.end(ring.begin(record_of("send", i), kGroup), FlightState::done);
  };

  ring.begin_wait(waits_for, kGroup);
  REQUIRE(read().size() == 1);  // the ring contains it, among others
  CHECK(read()[0].start_ns > 7);
  CHECK(read()[0].wait_ns > 0);
  forget();
  REQUIRE(read().size() == 3);
  CHECK(read()[0].ticket == waits_for.ticket);
  CHECK(read()[0].op == std::string("recv"));
  CHECK(read()[0].sequence == 5);
  CHECK(read()[0].group == std::string("dp"));
  CHECK(read()[0].group_id == 17);
  CHECK(read()[0].start_ns == 7);
  CHECK(read()[0].wait_ns > 0);
  CHECK(read()[0].state == FlightState::running);

  ring.end_wait(3, waits_for.ticket, /*failed=*/true);
  REQUIRE(read().size() == 3);
  CHECK(read()[0].state == FlightState::failed);
  CHECK(read()[0].end_ns >= read()[0].wait_ns);
  ring.begin_wait(waits_for, kGroup);  // even if the wait begins after that
  CHECK(read().size() == 3);
  ring.end_wait(3, waits_for.ticket + 1, /*failed=*/false);  // another thread's
  CHECK(read().size() == 3);
  ring.end_wait(3, waits_for.ticket, /*failed=*/false);
  CHECK(read().size() == 2);
}

TEST_CASE("flight ring: stores the thread's place, truncated to the size of its fields") {
  FlightRing ring({.capacity = 2});
  set_flight_step(5);
  set_flight_instruction("forward, microbatch 2, chunk 1");
  set_flight_layer("h.7");
  ring.begin(record_of("send", 0), kGroup);
  std::thread([&] { ring.begin(record_of("send", 1), kGroup); }).join();
  const FlightPlace here = ring.records()[0].place, elsewhere = ring.records()[1].place;
  CHECK(here.instruction == std::string("forward, microbatch 2, chunk 1"));
  CHECK(here.layer == std::string("h.7"));
  CHECK(here.step == 5);
  CHECK(elsewhere.instruction == std::string());
  set_flight_instruction(std::string(500, 'x'));
  ring.begin(record_of("send", 2), kGroup);
  const FlightPlace next = ring.records()[1].place;
  CHECK(std::strlen(next.instruction) == sizeof next.instruction - 1);
  CHECK(next.layer == std::string());
  CHECK(next.serial == here.serial + 1);
  CHECK(next.since_ns >= here.since_ns);
  set_flight_instruction("");
  set_flight_step(0);
}

TEST_CASE("flight ring: many threads can write at once without losing records") {
  FlightRing ring({.capacity = 4000});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 1000; ++i) {
        const FlightGroup group{100 + i % 10 * 4 + t, "g", {0}};
        ring.end(ring.begin(record_of("send", i), group), FlightState::done);
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(ring.records().size() == 4000);
}

TEST_CASE("flight ring: a killed process leaves its file") {
  TemporaryFile file;
  const pid_t child = ::fork();
  if (child == 0) {
    FlightRing ring(one_of_four(file.path));
    for (uint64_t i = 0; i < 20; ++i) ring.end(ring.begin(record_of("all_reduce", i), kGroup), FlightState::done);
    ring.wait(ring.begin(record_of("recv", 2, 0), kGroup));
    ring.set_place(3, {.since_ns = 9, .step = 12, .instruction = "forward", .layer = "h.1"});
    ring.end_rank(3, FlightEnd::gave_up, "limit");
    ring.end_rank(3, FlightEnd::done, "later");
    ring.beat();
    ::raise(SIGKILL);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  REQUIRE(WIFSIGNALED(status));
  const FlightFile read = read_flight_file(file.path);
  REQUIRE(read.records.size() == 8);
  std::ostringstream text;
  print_flight(text, read.records);
  CHECK_THAT(text.str(),
             Catch::Contains("done    rank 3 all_reduce dp #19") && Catch::Contains("RUNNING rank 3 recv dp #2"));
  CHECK(read.records.back().wait_ns >= read.records.back().start_ns);
  CHECK(read.world_size == 4);
  CHECK(read.job == "job a");
  CHECK(read.beat_ns > 0);
  REQUIRE(read.ranks.size() == 1);
  CHECK(read.ranks[0].rank == 3);
  CHECK(read.ranks[0].place.layer == std::string("h.1"));
  CHECK(read.ranks[0].place.step == 12);
  CHECK(read.ranks[0].end == FlightEnd::gave_up);
  CHECK(read.ranks[0].reason == "limit");
  REQUIRE(read.groups.size() == 1);
  CHECK(read.groups[0].id == 17);
  CHECK(read.groups[0].name == "dp");
  CHECK(read.groups[0].members == std::vector{1, 3});
  // The ring has forgotten all of them but the last.
  CHECK(read.begun(17, 3, FlightStream::collective) == 20);
  CHECK(read.begun(17, 3, FlightStream::recv, 0) == 3);
  CHECK(read.begun(17, 3, FlightStream::send, 0) == 0);
}

TEST_CASE("flight ring: the reason for an end keeps its line breaks, and shows if it was truncated") {
  TemporaryFile file;
  FlightRing ring({.path = file.path, .ranks = 2, .world_size = 2});
  ring.end_rank(0, FlightEnd::failed, "two\nlines\x1b[2J");
  ring.end_ranks(FlightEnd::cut_off, std::string(1000, 'x'));
  const FlightFile read = read_flight_file(file.path);
  CHECK(read.ranks[0].end == FlightEnd::failed);
  CHECK(read.ranks[0].reason == "two\nlines?[2J");
  CHECK(read.ranks[1].end == FlightEnd::cut_off);
  CHECK(read.ranks[1].reason == std::string(sizeof(flight::Rank::reason) - 5, 'x') + " ...");
}

TEST_CASE("flight ring: the record of a stopped process shows the gap and what it was doing") {
  TemporaryFile file;
  FlightRing ring(one_of_four(file.path));
  ring.set_place(3, {.step = 1, .layer = "h.1"});
  ring.beat();
  CHECK(read_flight_file(file.path).gap_begin_ns == 0);
  const uint64_t waiting = ring.begin(record_of("all_reduce", 0), kGroup);
  std::this_thread::sleep_for(std::chrono::milliseconds(kFlightGapMilliseconds + 100));
  // The waiting thread may wake up first, find that its limit has passed, and end the job before another beat.
  if (GENERATE(true, false))
    ring.beat();
  else
    ring.end(waiting, FlightState::failed);
  ring.set_place(3, {.step = 1, .layer = "h.2"});
  const FlightFile read = read_flight_file(file.path);
  CHECK(read.gap_end_ns - read.gap_begin_ns > kFlightGapMilliseconds * int64_t{1000000});
  CHECK(read.ranks[0].before_gap.layer == std::string("h.1"));
  CHECK(read.ranks[0].place.layer == std::string("h.2"));
}

TEST_CASE("flight ring: operations of groups that do not fit are unknown") {
  TemporaryFile file;
  {
    FlightRing ring(one_of_four(file.path));
    for (uint64_t id = 1; id <= 1000; ++id) ring.begin(record_of("barrier", 0), {id, "g", {0, 3}});
  }
  const FlightFile read = read_flight_file(file.path);
  CHECK(read.begun(1, 3, FlightStream::collective) == 1);
  CHECK(read.begun(1000, 3, FlightStream::collective) == std::nullopt);
}

TEST_CASE("flight ring: a truncated file or one of another kind is refused, and the error names it") {
  TemporaryFile file;
  CHECK_THROWS_AS(read_flight_file(file.path), DataError);
  std::ofstream(file.path) << "something else entirely, long enough for a header" << std::string(1000, '.');
  CHECK_THROWS_WITH(read_flight_file(file.path), Catch::Contains(file.path));
  { FlightRing ring(one_of_four(file.path)); }
  CHECK(std::filesystem::file_size(file.path) == static_cast<uint64_t>(FlightRing::bytes_of(one_of_four(""))));
  std::filesystem::resize_file(file.path, 1000);
  CHECK_THROWS_WITH(read_flight_file(file.path), Catch::Contains("its header describes"));
  CHECK_THROWS_AS(FlightRing({.path = "/no/such/folder/ring"}), RunError);
  std::filesystem::remove(file.path);
  REQUIRE(::mkfifo(file.path.c_str(), 0600) == 0);  // reading from a pipe might never end
  CHECK_THROWS_WITH(read_flight_file(file.path), Catch::Contains("must be a regular file"));
}

// The header of the ring file of four ranks, modified, and the first two entries of its table of groups.
template <class Change>
void change(const std::string& path, const Change& change) {
  { FlightRing ring(one_of_four(path)); }
  std::string bytes = bytes_of(path);
  flight::Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  const flight::Offsets offsets(header);
  flight::Group groups[2];
  std::memcpy(groups, bytes.data() + offsets.groups, sizeof groups);
  change(header, groups);
  std::memcpy(bytes.data(), &header, sizeof header);
  std::memcpy(bytes.data() + offsets.groups, groups, sizeof groups);
  std::ofstream(path, std::ios::binary) << bytes;
}

TEST_CASE("flight ring: a file cannot claim more groups and ranks than it has room for") {
  TemporaryFile file;
  const auto with_groups = [&](uint32_t first_of_second) {
    change(file.path, [&](flight::Header& header, auto& groups) {
      header.groups_used = 2;
      groups[0] = {.id = 1, .name = "a", .first_member = 0, .size = 4};
      groups[1] = {.id = 2, .name = "b", .first_member = first_of_second, .size = 4};
    });
    return read_flight_file(file.path).groups.size();
  };
  CHECK(with_groups(4) == 2);
  CHECK(with_groups(3) == 1);  // if all groups named the same members, they would need more than the file has
  const auto refused = [&](uint32_t flight::Header::*field, uint32_t value) {
    change(file.path, [&](flight::Header& header, auto&) { header.*field = value; });
    CHECK_THROWS_WITH(read_flight_file(file.path), Catch::Contains("is not a flight ring"));
  };
  refused(&flight::Header::world_size, 1 << 20);
  refused(&flight::Header::ranks, 0);
}

TEST_CASE("flight ring: records read from a file with arbitrary contents are valid") {
  TemporaryFile file;
  {
    FlightRing ring(one_of_four(file.path));
    for (uint64_t i = 0; i < 9; ++i) ring.end(ring.begin(record_of("recv", i, 1), kGroup), FlightState::done);
    ring.set_place(3, {.instruction = "forward", .layer = "h.1"});
    FlightRecord waits_for = record_of("recv", 0, 1);
    waits_for.ticket = 1;
    ring.begin_wait(waits_for, kGroup);
  }
  REQUIRE(read_flight_file(file.path).records.size() == 9);  // those of the ring and of the table of ranks
  const std::string whole = bytes_of(file.path);
  std::mt19937 random(1);
  int read_well = 0;
  for (int attempt = 0; attempt < 3000; ++attempt) {
    std::string damaged = whole;
    // Most changes are after the header, whose sizes must fit the file.
    const size_t begin = attempt % 4 == 0 ? 0 : 128;
    for (int i = 0; i < 1 + attempt % 200; ++i)
      damaged[begin + random() % (damaged.size() - begin)] = static_cast<char>(attempt % 3 == 0 ? 0xff : random());
    std::ofstream(file.path, std::ios::binary) << damaged;
    try {
      const FlightFile read = read_flight_file(file.path);
      ++read_well;
      for (const FlightRecord& record : read.records) {
        REQUIRE((record.rank >= 0 && record.rank < read.world_size));
        REQUIRE((record.peer >= -1 && record.peer < read.world_size));
      }
      for (const FlightGroup& group : read.groups)
        for (const int member : group.members) REQUIRE((member >= 0 && member < read.world_size));
      std::ostringstream text;
      print_flight(text, read.records);
      text << read.host << read.job;
      for (const char c : text.str()) REQUIRE((c == '\n' || (c >= ' ' && c <= '~')));
    } catch (const DataError& error) {
      REQUIRE(std::string(error.what()).find(file.path) != std::string::npos);
    }
  }
  CHECK(read_well > 1000);
}

}  // namespace
}  // namespace shardline::flight_ring_test
