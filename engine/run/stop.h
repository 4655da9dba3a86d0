// A signal that asks the run to end after its current step.
#pragma once

namespace shardline {

// While one of these lives, a request to stop is looked at after every step; otherwise a run has nothing to lose.
class StopAwaited {
 public:
  StopAwaited();
  ~StopAwaited();
  StopAwaited(const StopAwaited&) = delete;
  StopAwaited& operator=(const StopAwaited&) = delete;
};

bool request_stop(int signal);  // false: nothing waits for it. Async-signal-safe
int stop_signal();              // 0: none

}  // namespace shardline
