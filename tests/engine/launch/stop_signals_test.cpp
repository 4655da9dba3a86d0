#include "engine/launch/stop_signals.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "engine/run/stop.h"

#include "tests/catch.h"

namespace shardline::stop_signals_test {

// The process was not started by mpirun, which repeats SIGUSR1.
TEST_CASE("The same signal a second time ends a training run", "[stop_signals]") {
  const int signal = GENERATE(SIGUSR1, SIGTERM, SIGINT);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::close(STDERR_FILENO);
    handle_stop_signals("");
    enter_phase(RunPhase::training);
    ::kill(::getpid(), signal);
    ::kill(::getpid(), signal);  // belongs to the first one
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
    if (stop_signal() != signal) ::_exit(7);
    ::kill(::getpid(), signal);
    std::this_thread::sleep_for(std::chrono::seconds(10));  // the handler ends the process
    ::_exit(8);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 1);
}

namespace {

std::atomic<int> taken = 0;
std::atomic<bool> on_own_thread = true;
thread_local bool computes = false;

void note_thread(int, siginfo_t*, void*) {
  if (computes) on_own_thread = false;
  ++taken;
}

}  // namespace

// Kernels of oneDNN may use the stack pointer as another register, so a handler on their thread overwrites their
// memory.
TEST_CASE("Threads that compute handle no signals", "[stop_signals]") {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    set_stop_handler(note_thread);
    computes = true;
    std::atomic<bool> ends = false;
    std::thread other([&] {
      computes = true;
      while (!ends) continue;
    });
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    for (int sent = 0; sent < 100; ++sent) {
      ::kill(::getpid(), SIGTERM);
      while (taken <= sent && std::chrono::steady_clock::now() < deadline) continue;
    }
    ends = true;
    other.join();
    ::_exit(taken == 100 && on_own_thread ? 0 : 9);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

}  // namespace shardline::stop_signals_test
