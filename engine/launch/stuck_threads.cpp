#include "engine/launch/stuck_threads.h"

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <mutex>
#include <thread>
#include <utility>

#include "core/comm/mpi_communicator.h"
#include "core/comm/threads_communicator.h"
#include "core/error.h"
#include "engine/launch/start_ranks.h"

namespace shardline {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kQuiet = 1s;

std::mutex ranks_mutex;  // guards the four variables below
int ranks_running = 0;
Clock::time_point last_change;  // when ranks_running last changed
bool has_failed_rank = false;
int64_t ended_jobs = 0;  // how many times the last rank has ended; a process may start again

class RunningRank {
 public:
  RunningRank() { count(+1); }
  ~RunningRank() { count(-1); }

 private:
  static void count(int change) {
    const std::lock_guard lock(ranks_mutex);
    ranks_running += change;
    last_change = Clock::now();
    if (ranks_running > 0) return;
    has_failed_rank = false;
    ++ended_jobs;
  }
};

// Reports the error as run_ranks does, which cannot return while a rank runs.
[[noreturn]] void end_with(const std::exception_ptr& failure, int rank) {
  int code = EXIT_FAILURE;
  try {
    rethrow_of_rank(failure, rank);
  } catch (const std::exception& error) {
    code = report_end(error);
  }
  std::cout.flush();
  std::_Exit(code);
}

void end_when_stuck(const std::exception_ptr& failure, int rank, int64_t job) {
  while (true) {
    std::this_thread::sleep_for(50ms);
    const std::lock_guard lock(ranks_mutex);
    if (ended_jobs != job) return;
    if (Clock::now() - last_change >= kQuiet) break;
  }
  end_with(failure, rank);
}

void note_failure() {
  const std::lock_guard lock(ranks_mutex);
  if (std::exchange(has_failed_rank, true)) return;
  std::thread(end_when_stuck, std::current_exception(), current_rank(), ended_jobs).detach();
}

}  // namespace

int report_end(const std::exception& error) {
  static std::mutex one_at_a_time;
  static bool reported = false;
  const std::lock_guard lock(one_at_a_time);
  return std::exchange(reported, true) ? exit_code_of(error) : report_error(error, std::cerr);
}

void run_with_end(const std::function<void()>& rank) {
  if (mpi_is_launched()) return rank();
  const RunningRank counted;
  try {
    rank();
  } catch (const StoppedAfterSaving&) {  // all ranks have agreed on it
    throw;
  } catch (...) {
    note_failure();
    throw;
  }
}

}  // namespace shardline
