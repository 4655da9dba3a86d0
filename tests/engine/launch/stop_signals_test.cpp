#include "engine/launch/stop_signals.h"

#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "engine/run/stop.h"

#include "tests/catch.h"

namespace shardline::stop_signals_test {

// Mpirun, which repeats SIGUSR1, has not started it.
TEST_CASE("The same signal a second time ends a training run", "[stop_signals]") {
  const int signal = GENERATE(SIGUSR1, SIGTERM, SIGINT);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::close(STDERR_FILENO);
    handle_stop_signals("");
    enter_phase(RunPhase::training);
    std::raise(signal);
    std::raise(signal);  // belongs to the first one
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
    if (stop_signal() != signal) ::_exit(7);
    std::raise(signal);
    ::_exit(8);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 1);
}

}  // namespace shardline::stop_signals_test
