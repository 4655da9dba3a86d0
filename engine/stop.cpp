#include "engine/stop.h"

#include <atomic>

namespace shardline {
namespace {
std::atomic<int> requested{0};
}

void request_stop(int signal) { requested.store(signal); }
int stop_signal() { return requested.load(); }

}  // namespace shardline
