#include "core/comm/communicator_base.h"

#include <unistd.h>

#include <filesystem>

#include "core/flight/flight_ring.h"

#include "tests/catch.h"

namespace shardline::communicator_base_test {
namespace {

std::string words_of_a_limit() {
  return CommIdentity::of_world(0, 2).timed_out(CommRequest{}, Work::TimePoint{}).what();
}

TEST_CASE("the error about an expired limit recommends `doctor` only if this process keeps records") {
  open_flight_ring({});
  CHECK_THAT(words_of_a_limit(), Catch::Contains("the time limit has passed") && !Catch::Contains("doctor"));
  const auto output_dir = std::filesystem::temp_directory_path() / cat("communicator_base_test_", ::getpid());
  std::filesystem::create_directories(output_dir / "flight");
  open_flight_ring({.path = output_dir / "flight" / "rank-0"});
  CHECK_THAT(words_of_a_limit(), Catch::Contains(cat("'shardline doctor ", output_dir.string(), "'")));
  open_flight_ring({});
  std::filesystem::remove_all(output_dir);
}

}  // namespace
}  // namespace shardline::communicator_base_test
