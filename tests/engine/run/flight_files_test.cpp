#include "engine/run/flight_files.h"

#include <filesystem>

#include "core/comm/threads_communicator.h"
#include "core/flight/flight_ring.h"
#include "engine/observe/doctor/job_records.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::flight_files_test {

using Catch::Matchers::Contains;
namespace fs = std::filesystem;

// Each rank is the first one on a host with its own output_dir.
JobRecords records_of_new_job(const TempFolder& folder) {
  run_ranks(2, [&](CommunicatorPtr world) {
    Config config;
    config.output_dir = (folder.path() / cat("host-", world->rank())).string();
    config.runtime.communicator = CommunicatorChoice::threads;
    config.runtime.timeline_steps = 0;
    RankContext context{.world = world, .local_rank = 0};
    keep_flight_records(config, context, Mesh(Placement{}, 1, 2, 1));
  });
  open_flight_ring({});
  return read_job_records(folder.path() / "host-0" / "flight", /*runs=*/false);
}

// Does this on each host.
void forget_earlier_jobs(const TempFolder& folder) {
  for (const int host : {0, 1}) {
    Config config;
    config.output_dir = (folder.path() / cat("host-", host)).string();
    forget_earlier_flight_records(config, RankContext{.local_rank = 0});
  }
}

TEST_CASE("Every host sets the flight records of earlier jobs aside, and each job has an id", "[flight_files]") {
  const TempFolder folder;
  for (const char* name : {"rank-0", "rank-5", "job-0.json", "killed.json", "reported-before"})
    for (const char* host : {"host-0", "host-1"}) folder.write(cat(host, "/flight/", name), "of an earlier job");
  const JobRecords first = records_of_new_job(folder);
  CHECK(first.job.size() == 16);
  CHECK(first.world_size == 2);
  CHECK(first.ranks.size() == 2);
  CHECK(first.stages == std::vector{0, 1});
  CHECK(first.hosts.size() == 2);
  CHECK(first.left_out == 0);
  CHECK_FALSE(first.killed);
  CHECK_FALSE(fs::exists(folder.path() / "host-0/flight/reported-before"));
  CHECK_FALSE(fs::exists(folder.path() / "host-1/flight"));  // its rank shares the file of the first one
  CHECK(records_of_new_job(folder).job != first.job);
  for (const char* host : {"host-0", "host-1"})
    for (const char* name : {"rank-5", "job-0.json", "killed.json"})
      CHECK(fs::exists(folder.path() / host / "flight.previous" / name));
}

TEST_CASE("The records of a failed job stay until another job begins its steps", "[flight_files]") {
  const TempFolder folder;
  const auto previous = [&] { return read_job_records(folder.path() / "host-0/flight.previous", false).job; };
  const std::string failed = records_of_new_job(folder).job;
  forget_earlier_jobs(folder);
  records_of_new_job(folder);  // is refused
  CHECK(previous() == failed);
  records_of_new_job(folder);  // refused again
  CHECK(previous() == failed);
  const std::string last = records_of_new_job(folder).job;
  forget_earlier_jobs(folder);
  CHECK_FALSE(fs::exists(folder.path() / "host-0/flight.previous"));
  records_of_new_job(folder);
  CHECK(previous() == last);
}

}  // namespace shardline::flight_files_test
