// The test programs' main. A filter that matches no test is a failure: a test that was renamed must not pass for one
// that ran.
#define CATCH_CONFIG_RUNNER
#include "tests/catch.h"

int main(int argc, char** argv) {
  Catch::Session session;
  session.configData().warnings = Catch::WarnAbout::NoTests;
  return session.run(argc, argv);
}
