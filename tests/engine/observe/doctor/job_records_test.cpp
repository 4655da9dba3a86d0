#include "engine/observe/doctor/job_records.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/flight/flight_ring.h"
#include "engine/observe/doctor/diagnosis_text.h"
#include "tests/engine/observe/scratch_folder.h"

#include "tests/catch.h"

namespace shardline::job_records_test {
namespace {

using Catch::Contains;

// The files of successive jobs in the same folder.
class Folder {
 public:
  // A process of a job.
  void add_rank(const std::string& job, int rank, int world_size) {
    const FlightRing ring({.path = file(cat("rank-", rank)), .job = job, .first_rank = rank, .world_size = world_size});
  }
  void add_places(const std::string& job, int rank, const std::vector<std::string>& hosts) {
    write_job_places(folder_.path(), rank, {hosts, std::vector<int>(hosts.size(), 0), job});
  }
  std::string file(const std::string& name) const { return folder_.path() + "/" + name; }
  void write(const std::string& name, const std::string& text) const { std::ofstream(file(name)) << text; }

  JobRecords read() const { return read_job_records(folder_.path(), /*runs=*/false); }
  std::string path() const { return folder_.path(); }

 private:
  ScratchFolder folder_;
};

TEST_CASE("doctor: files of an earlier job of any size are left out and counted") {
  Folder folder;
  const int ranks_before = GENERATE(2, 6);
  for (int rank = 0; rank < ranks_before; ++rank) folder.add_rank("before", rank, ranks_before);
  folder.add_places("before", 0, std::vector<std::string>(ranks_before, "old"));
  write_killed(folder.path(), "before", {1, "was killed by signal 9 (Killed)"});
  // As on a host with its own folder, on which only the new job's last rank runs.
  folder.add_rank("now", 1, 2);
  folder.add_places("now", 1, {"a", "b"});

  const JobRecords job = folder.read();
  CHECK(job.job == "now");
  CHECK(job.world_size == 2);
  CHECK(job.hosts == std::vector<std::string>{"a", "b"});
  CHECK(job.ranks.size() == 1);
  CHECK(job.ranks.contains(1));
  CHECK_FALSE(job.killed);
  CHECK(job.left_out == ranks_before - 1 + 2);
  const Diagnosis diagnosis = diagnose(job);
  CHECK_THAT(situations_text(diagnosis, 16), Contains(cat("left out: ", job.left_out, " files of other jobs\n")));
  CHECK(diagnosis_json(diagnosis)["files_of_other_jobs"] == job.left_out);
  CHECK(newest_flight_files(folder.path()).files.size() == 1);
}

TEST_CASE("doctor: all files of the newest job are used") {
  Folder folder;
  folder.add_rank("now", 0, 2);
  folder.add_rank("now", 1, 2);
  folder.add_places("now", 0, {"a", "b"});
  folder.add_places("now", 1, {"a", "b"});
  write_killed(folder.path(), "now", {1, "was killed by signal 9 (Killed)"});
  const JobRecords job = folder.read();
  CHECK(job.ranks.size() == 2);
  CHECK(job.hosts.size() == 2);
  REQUIRE(job.killed);
  CHECK(job.killed->rank == 1);
  CHECK(job.left_out == 0);
  CHECK_THAT(situations_text(diagnose(job), 16), !Contains("left out"));
}

TEST_CASE("doctor: damaged JSON files are named, and the rest is read") {
  Folder folder;
  folder.add_rank("now", 0, 1);
  folder.add_places("now", 1, {"a"});
  const auto refused = [&](const char* name, const std::string& text) {
    folder.write(name, text);
    const JobRecords job = folder.read();
    REQUIRE(job.damaged.size() == 1);
    CHECK_THAT(job.damaged[0], Contains(folder.file(name)));
    CHECK(job.hosts == std::vector<std::string>{"a"});
    CHECK(job.stages == std::vector{0});
    CHECK_FALSE(job.killed);
    CHECK_THAT(situations_text(diagnose(job), 16), Contains("left out, because it is damaged: " + job.damaged[0]));
    CHECK(diagnosis_json(diagnose(job))["damaged_files"] == job.damaged);
    std::filesystem::remove(folder.file(name));
  };
  for (const char* name : {"job-0.json", "killed.json"})
    for (const char* text : {"", "[", "[]", "{}", R"({"job": 1})", R"({"job": "now"})"}) refused(name, text);
  refused("job-0.json", R"({"job": "now", "hosts": ["a", "b"], "stages": [0, 0]})");
  refused("job-0.json", R"({"job": "now", "hosts": ["a"], "stages": [-1]})");
  refused("killed.json", R"({"job": "now", "rank": 1, "how": "x"})");
}

TEST_CASE("doctor: damaged records of a rank are named, and those of the others are used") {
  Folder folder;
  for (const int rank : {0, 1, 2}) folder.add_rank("now", rank, 3);
  const std::string bytes = GENERATE("", "not a ring", "\x1b[2J");
  folder.write("rank-1", bytes);
  const JobRecords job = folder.read();
  CHECK(job.ranks.contains(0));
  CHECK_FALSE(job.ranks.contains(1));
  CHECK(job.ranks.contains(2));
  REQUIRE(job.damaged.size() == 1);
  CHECK_THAT(job.damaged[0], Contains(folder.file("rank-1")));
  CHECK_THAT(
      situations_text(diagnose(job), 16),
      Contains("left out, because it is damaged: " + folder.file("rank-1")) && Contains("rank 1: no records here"));
  CHECK(newest_flight_files(folder.path()).damaged == job.damaged);
  for (const int rank : {0, 2}) folder.write(cat("rank-", rank), bytes);
  CHECK_THROWS_AS(folder.read(), DataError);
  CHECK_THROWS_WITH(folder.read(), Contains("has only damaged records") && Contains(folder.file("rank-0")));
}

TEST_CASE("doctor: records of a job of another size are named as damaged") {
  Folder folder;
  folder.add_rank("now", 0, 2);
  folder.add_rank("now", 1, 3);
  const JobRecords job = folder.read();
  CHECK(job.world_size == 2);
  CHECK(job.ranks.size() == 1);
  REQUIRE(job.damaged.size() == 1);
  CHECK_THAT(job.damaged[0], Contains(folder.file("rank-1")));
}

TEST_CASE("doctor: text read from a folder of records cannot send commands to a terminal") {
  Folder folder;
  folder.add_rank("now", 0, 2);
  folder.write("job-0.json", R"({"job": "now", "hosts": ["a\u001b[2J", "b\r"], "stages": [0, 1]})");
  folder.write("killed.json", R"({"job": "now", "rank": 1, "how": "was killed\u0007 by \u202e"})");
  const JobRecords job = folder.read();
  CHECK(job.hosts == std::vector<std::string>{"a?[2J", "b?"});
  REQUIRE(job.killed);
  CHECK(job.killed->how == "was killed? by ???");
}

TEST_CASE("doctor: only regular files are read") {
  Folder folder;
  CHECK_THROWS_AS(folder.read(), RunError);
  std::filesystem::create_directory(folder.file("rank-7"));
  CHECK_THROWS_WITH(folder.read(), Contains("has no records of ranks"));
  folder.add_rank("now", 0, 1);
  CHECK(folder.read().ranks.size() == 1);
}

}  // namespace
}  // namespace shardline::job_records_test
