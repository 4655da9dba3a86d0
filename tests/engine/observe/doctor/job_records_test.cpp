#include "engine/observe/doctor/job_records.h"

#include "core/error.h"
#include "core/files/disk_file.h"
#include "core/flight/flight_ring.h"
#include "tests/engine/observe/scratch_folder.h"

#include "tests/catch.h"

namespace shardline::job_records_test {

using Catch::Contains;

TEST_CASE("doctor: what is read from a folder of records cannot command a terminal") {
  const ScratchFolder scratch;
  const auto file = [&](const char* name) { return scratch.path() + "/" + name; };
  { FlightRing ring({.path = file("rank-0"), .capacity = 2, .ranks = 2, .world_size = 2}); }
  write_file(file("job-0.json"), R"({"hosts": ["a\u001b[2J", "b\r"], "stages": [0, 1]})");
  write_file(file("killed.json"), R"({"rank": 1, "how": "was killed\u0007 by \u202e"})");
  const JobRecords job = read_job_records(scratch.path(), false);
  CHECK(job.hosts == std::vector<std::string>{"a?[2J", "b?"});
  REQUIRE(job.killed);
  CHECK(job.killed->how == "was killed? by ???");
  write_file(file("killed.json"), R"({"rank": 2, "how": ""})");
  CHECK_THROWS_WITH(read_job_records(scratch.path(), false), Contains("killed.json: /rank"));
}

}  // namespace shardline::job_records_test
