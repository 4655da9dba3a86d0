#define CATCH_CONFIG_RUNNER
#include "tests/catch_runner.h"

#include "tests/catch.h"

namespace shardline::testing {

int run_cases(int argc, char** argv) {
  Catch::Session session;
  session.configData().warnings = Catch::WarnAbout::NoTests;
  return session.run(argc, argv);
}

}  // namespace shardline::testing
