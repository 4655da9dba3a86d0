#include "core/comm/flight_ring.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "core/error.h"

#include "tests/catch.h"

namespace shardline::flight_ring_test {
namespace {

FlightRecord record_of(const char* op, uint64_t sequence) {
  FlightRecord record;
  std::strncpy(record.op, op, sizeof record.op - 1);
  record.sequence = sequence;
  record.rank = 3;
  return record;
}

struct TemporaryFile {
  std::string path = (std::filesystem::temp_directory_path() / cat("flight_ring_test_", ::getpid())).string();
  ~TemporaryFile() { std::filesystem::remove(path); }
};

TEST_CASE("flight ring: keeps the latest records, oldest first") {
  FlightRing ring(4);
  for (uint64_t i = 0; i < 10; ++i) ring.end(ring.begin(record_of("send", i)), FlightState::done);
  const auto records = ring.records();
  REQUIRE(records.size() == 4);
  for (size_t i = 0; i < 4; ++i) {
    CHECK(records[i].sequence == 6 + i);
    CHECK(records[i].state == FlightState::done);
    CHECK(records[i].end_ns >= records[i].start_ns);
  }
}

TEST_CASE("flight ring: the end of an overwritten record changes nothing") {
  FlightRing ring(2);
  const uint64_t old = ring.begin(record_of("old", 0));
  ring.begin(record_of("new", 1));
  ring.begin(record_of("new", 2));
  ring.end(old, FlightState::failed);
  for (const FlightRecord& record : ring.records()) CHECK(record.state == FlightState::running);
}

TEST_CASE("flight ring: carries the thread's instruction, cut to its field") {
  FlightRing ring(2);
  set_flight_instruction("Forward mb 2 chunk 1");
  ring.begin(record_of("send", 0));
  std::thread([&] { ring.begin(record_of("send", 1)); }).join();
  set_flight_instruction(std::string(500, 'x'));
  CHECK(ring.records()[0].instruction == std::string("Forward mb 2 chunk 1"));
  CHECK(ring.records()[1].instruction == std::string());
  ring.begin(record_of("send", 2));
  CHECK(std::strlen(ring.records()[1].instruction) == sizeof(FlightRecord::instruction) - 1);
  set_flight_instruction("");
}

TEST_CASE("flight ring: many threads at once lose nothing") {
  FlightRing ring(4000);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (uint64_t i = 0; i < 1000; ++i) ring.end(ring.begin(record_of("send", i)), FlightState::done);
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(ring.records().size() == 4000);
}

TEST_CASE("flight ring: a killed process leaves its file") {
  TemporaryFile file;
  const pid_t child = ::fork();
  if (child == 0) {
    FlightRing ring(8, file.path);
    ring.end(ring.begin(record_of("all_reduce", 1)), FlightState::done);
    ring.begin(record_of("recv", 2));
    ::raise(SIGKILL);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  REQUIRE(WIFSIGNALED(status));
  const auto records = read_flight_file(file.path);
  REQUIRE(records.size() == 2);
  std::ostringstream text;
  print_flight(text, records);
  CHECK_THAT(text.str(), Catch::Contains("done    rank 3 all_reduce") && Catch::Contains("RUNNING rank 3 recv  #2"));
}

TEST_CASE("flight ring: a file that is none, or is cut, is refused by name") {
  TemporaryFile file;
  CHECK_THROWS_AS(read_flight_file(file.path), DataError);
  std::ofstream(file.path) << "something else entirely, long enough for a header";
  CHECK_THROWS_WITH(read_flight_file(file.path), Catch::Contains(file.path));
  { FlightRing ring(8, file.path); }
  std::filesystem::resize_file(file.path, 1000);
  CHECK_THROWS_WITH(read_flight_file(file.path), Catch::Contains("of 8 records"));
  CHECK_THROWS_AS(FlightRing(8, "/no/such/folder/ring"), RunError);
}

}  // namespace
}  // namespace shardline::flight_ring_test
