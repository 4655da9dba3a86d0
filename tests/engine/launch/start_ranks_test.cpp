#include "engine/launch/start_ranks.h"

#include <sstream>

#include "core/error.h"

#include "tests/catch.h"

namespace shardline::start_ranks_test {

namespace {

// The exit code and output of a process that is this rank.
std::pair<int, std::string> report(int rank, const std::exception& error) {
  const int before = current_rank();
  set_current_rank(rank);
  std::ostringstream log;
  const int code = report_error(error, log);
  set_current_rank(before);
  return {code, log.str()};
}

}  // namespace

TEST_CASE("only the rank that reports a stop ends with its code, so that mpirun does not end it before") {
  const StoppedAfterSaving stopped("saved; to continue: ...");
  const std::string text = "saved; to continue: ...\n";
  CHECK(report(-1, stopped) == std::pair(3, text));
  CHECK(report(0, stopped) == std::pair(3, text));
  CHECK(report(1, stopped) == std::pair(0, std::string()));
  CHECK(report(1, RunError("disk")) == std::pair(1, std::string("error: disk\n")));
  CHECK(report(1, ConfigError("key")).first == 2);
}

}  // namespace shardline::start_ranks_test
