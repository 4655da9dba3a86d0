#include "engine/run/stop.h"

#include <atomic>

namespace shardline {
namespace {
std::atomic<int> requested{0};
std::atomic<RunPhase> phase_of_run{RunPhase::preparing};
}  // namespace

void enter_phase(RunPhase phase) {
  phase_of_run.store(phase);
}

RunPhase run_phase() {
  return phase_of_run.load();
}

void request_stop(int signal) {
  requested.store(signal);
}

int stop_signal() {
  return requested.load();
}

}  // namespace shardline
