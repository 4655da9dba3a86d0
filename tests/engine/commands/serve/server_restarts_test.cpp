#include "engine/commands/serve/server_restarts.h"

#include "engine/launch/exit_codes.h"

#include "tests/catch.h"

namespace shardline::server_restarts_test {

using namespace std::chrono_literals;
using Catch::Matchers::Contains;

TEST_CASE("a server that has never served is not restarted", "[server_restarts]") {
  ServerRestarts restarts;
  CHECK_FALSE(restarts.again_after({.exit_code = kExitFailed}));
  CHECK(restarts.reason().empty());
}

TEST_CASE("a server that was asked to stop, or that a restart cannot help, is not restarted", "[server_restarts]") {
  for (const int code : {0, kExitConfig, kExitBadData}) {
    ServerRestarts restarts;
    CHECK_FALSE(restarts.again_after({.exit_code = code, .served = 100s}));
  }
  ServerRestarts restarts;
  CHECK_FALSE(restarts.again_after({.exit_code = kExitFailed, .asked_to_stop = true, .served = 100s}));
  CHECK(restarts.reason().empty());
}

TEST_CASE("a server that fails early is restarted at most five times in succession", "[server_restarts]") {
  ServerRestarts restarts;
  CHECK(restarts.again_after({.exit_code = kExitFailed, .served = 3s}));
  for (int early = 2; early <= ServerRestarts::kMost; ++early) {
    const bool has_begun = early % 2 == 0;
    CHECK(restarts.again_after({.exit_code = kExitFailed, .served = has_begun ? std::optional(0s) : std::nullopt}));
  }
  SECTION("which does not end") {
    CHECK_FALSE(restarts.again_after({.exit_code = kExitFailed, .served = 59s}));
    CHECK_THAT(restarts.reason(), Contains("failed 6 times in succession without having served for 60 s"));
  }
  SECTION("and as often after it has served for a while") {
    CHECK(restarts.again_after({.exit_code = kExitFailed, .served = 60s}));
    CHECK(restarts.again_after({.exit_code = kExitFailed, .served = 0s}));
  }
}

}  // namespace shardline::server_restarts_test
