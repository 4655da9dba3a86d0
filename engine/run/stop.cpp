#include "engine/run/stop.h"

#include <atomic>
#include <cstdint>
#include <ctime>

namespace shardline {
namespace {
std::atomic<int> requested{0};
std::atomic<int64_t> requested_at{0};  // in milliseconds
std::atomic<RunPhase> phase_of_run{RunPhase::preparing};

int64_t milliseconds() {
  timespec now = {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
}  // namespace

void enter_phase(RunPhase phase) {
  phase_of_run.store(phase);
}

RunPhase run_phase() {
  return phase_of_run.load();
}

bool request_stop(int signal) {
  const int64_t now = milliseconds();
  int first = 0;
  if (requested == 0) requested_at = now;
  if (requested.compare_exchange_strong(first, signal)) return false;
  return now - requested_at >= (signal == first ? 200 : 1000);
}

int stop_signal() {
  return requested.load();
}

}  // namespace shardline
