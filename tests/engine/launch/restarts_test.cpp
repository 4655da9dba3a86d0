#include "engine/launch/restarts.h"

#include "engine/launch/exit_codes.h"

#include "tests/catch.h"

namespace shardline::restarts_test {

using Catch::Matchers::Contains;

namespace {

constexpr AttemptEnd kFailed{.exit_code = kExitFailed};
constexpr AttemptEnd kFailedAfterSaving{.exit_code = kExitFailed, .saved_something = true};

}  // namespace

TEST_CASE("A failed job is restarted only if the config allows it", "[restarts]") {
  Restarts restarts(0);
  CHECK_FALSE(restarts.again_after(kFailedAfterSaving));
  CHECK(restarts.reason().empty());
}

TEST_CASE("A failure that a restart cannot change ends the job", "[restarts]") {
  for (const int code : {0, kExitConfig, kExitStopped, kExitBadData}) {
    Restarts restarts(5);
    CHECK_FALSE(restarts.again_after({.exit_code = code, .saved_something = true}));
    CHECK(restarts.reason().empty());
  }
  Restarts restarts(5);
  CHECK_FALSE(restarts.again_after({.exit_code = kExitFailed, .finished = true, .saved_something = true}));
  CHECK(restarts.reason().empty());
  CHECK_FALSE(restarts.again_after({.exit_code = kExitFailed, .asked_to_stop = true, .saved_something = true}));
  CHECK_THAT(restarts.reason(), Contains("was asked to stop"));
}

TEST_CASE("A run that makes progress is restarted as often as the config allows", "[restarts]") {
  Restarts restarts(3);
  for (int attempt = 1; attempt <= 3; ++attempt) {
    CHECK(restarts.again_after(kFailedAfterSaving));
    CHECK(restarts.attempts() == attempt);
  }
  CHECK_FALSE(restarts.again_after(kFailedAfterSaving));
  CHECK_THAT(restarts.reason(), Contains("started again 3 times") && Contains("mpi_options.max_restarts"));
}

TEST_CASE("Two attempts in succession without a checkpoint end the job", "[restarts]") {
  Restarts restarts(100);
  CHECK(restarts.again_after(kFailed));
  CHECK(restarts.again_after(kFailedAfterSaving));
  CHECK(restarts.again_after(kFailed));
  CHECK_FALSE(restarts.again_after(kFailed));
  CHECK_THAT(restarts.reason(), Contains("the last 2 attempts saved no checkpoint"));
}

}  // namespace shardline::restarts_test
