#include "engine/run/stop.h"

#include <atomic>

namespace shardline {
namespace {
std::atomic<int> requested{0}, awaiting{0};
}

StopAwaited::StopAwaited() {
  ++awaiting;
}
StopAwaited::~StopAwaited() {
  --awaiting;
}

bool request_stop(int signal) {
  requested.store(signal);
  return awaiting.load() > 0;
}

int stop_signal() {
  return requested.load();
}

}  // namespace shardline
