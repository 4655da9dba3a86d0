#include "core/comm/timeouts.h"

#include <cstdlib>

#include "core/error.h"

#include "tests/catch.h"

namespace shardline::timeouts_test {
namespace {

using namespace std::chrono_literals;
using Catch::Contains;

// The table with SHARDLINE_TIMEOUT_SECONDS set to `text`; restores the environment afterwards.
Timeouts with_environment(const char* text, std::chrono::seconds ddp_timeout) {
  const char* const before = std::getenv(kTimeoutVariable);
  const std::string kept = before == nullptr ? "" : before;
  ::setenv(kTimeoutVariable, text, 1);
  struct Restore {
    const std::string& text;
    ~Restore() { text.empty() ? ::unsetenv(kTimeoutVariable) : ::setenv(kTimeoutVariable, text.c_str(), 1); }
  } const restore{kept};
  return timeouts_with(ddp_timeout);
}

TEST_CASE("timeouts: training.ddp_timeout sets every limit except those of the start") {
  const Timeouts table = with_environment("", 7s);
  for (const TimeLimit& limit : {table.collective, table.point_to_point}) {
    CHECK(limit.time == 7s);
    CHECK(limit.advice() == "; training.ddp_timeout sets this limit");
  }
  CHECK(table.start_up.time == 300s);
  CHECK(table.start_up.advice() == "; SHARDLINE_TIMEOUT_SECONDS sets this limit");
}

TEST_CASE("timeouts: the environment variable overrides every limit, and errors name it") {
  const Timeouts table = with_environment("2.5", 7s);
  for (const TimeLimit& limit : {table.start_up, table.collective, table.point_to_point}) {
    CHECK(limit.time == 2500ms);
    CHECK(limit.advice() == "; SHARDLINE_TIMEOUT_SECONDS sets this limit");
  }
  for (const char* const wrong : {"0", "-1", "ten", "5s", "inf"})
    CHECK_THROWS_WITH(with_environment(wrong, 7s), Contains("SHARDLINE_TIMEOUT_SECONDS must be a number of seconds") &&
                                                       Contains(cat('"', wrong, '"')));
}

TEST_CASE("timeouts: an error about a limit set by the program itself names no setting") {
  CHECK(TimeLimit(100ms).advice().empty());
}

}  // namespace
}  // namespace shardline::timeouts_test
