#include "engine/launch/hang_report.h"

#include <chrono>
#include <sstream>
#include <thread>

#include "core/error.h"
#include "core/flight/flight_ring.h"
#include "engine/observe/doctor/job_records.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::hang_report_test {

using Catch::Matchers::Contains;

// Rank 0 has waited in vain for rank 1, which is in the same process.
void keep_records_of_hang(const std::filesystem::path& flights, const std::string& job) {
  std::filesystem::create_directories(flights);
  open_flight_ring({.path = flights / "rank-0", .job = job, .ranks = 2, .world_size = 2});
  FlightRecord record;
  record.rank = 0;
  fill_text(record.op, "all_reduce");
  const FlightGroup world{1, "world", {0, 1}};
  record.ticket = flight_ring().begin(record, world);
  flight_ring().begin_wait(record, world);
  flight_ring().end(record.ticket, FlightState::failed);
  flight_ring().end_rank(0, FlightEnd::gave_up, "the time limit has passed");
}

std::string report_here() {
  std::ostringstream log;
  report_failing_rank(log);
  return log.str();
}

TEST_CASE("The first rank that fails reports for its job, even if earlier jobs have left files", "[hang_report]") {
  const TempFolder folder;
  folder.write("flight/reported", "");
  folder.write("flight/reported-earlier", "");
  keep_records_of_hang(folder.path() / "flight", "now");
  CHECK_THAT(report_here(), Contains("what the ranks were doing:") && Contains("error: rank 1"));
  CHECK(report_here().empty());  // another rank has reported this job
  keep_records_of_hang(folder.path() / "flight", "next");
  CHECK_THAT(report_here(), Contains("error: rank 1"));
  open_flight_ring({});
  CHECK(report_here().empty());  // a process without files
}

TEST_CASE("The launcher reports about the job that it has started, not about an earlier one", "[hang_report]") {
  const TempFolder folder;
  const auto flights = folder.path() / "flight";
  CHECK(recorded_jobs(flights).empty());
  keep_records_of_hang(flights, "earlier");
  write_job_places(flights, 0, {.hosts = {"a", "a"}, .stages = {0, 0}, .job = "earlier"});
  const auto before = recorded_jobs(flights);
  CHECK(before == std::set<std::string>{"earlier"});
  CHECK(report_of_ended_job(folder.path(), before, {}).empty());
  keep_records_of_hang(flights, "now");
  CHECK_THAT(report_of_ended_job(folder.path(), before, {}), Contains("error: rank 1"));
  open_flight_ring({});
}

TEST_CASE("A rank does not end the job while another one reports", "[hang_report]") {
  const TempFolder folder;
  keep_records_of_hang(folder.path() / "flight", "slow");
  folder.write("flight/reported-slow", "");  // the other rank's report has begun and is not done
  const auto begin = std::chrono::steady_clock::now();
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    folder.write("flight/reported-slow", "\n");
  });
  CHECK(report_here().empty());
  const auto took = std::chrono::steady_clock::now() - begin;
  other.join();
  CHECK(took >= std::chrono::milliseconds(190));
  open_flight_ring({});
}

}  // namespace shardline::hang_report_test
