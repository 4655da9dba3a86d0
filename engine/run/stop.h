// A signal that asks the run to end after its current step.
#pragma once

namespace shardline {

// While an object of this class exists, the run checks for a request to stop after every step. Without one the program
// exits at once, because there is nothing to lose.
class StopAwaited {
 public:
  StopAwaited();
  ~StopAwaited();
  StopAwaited(const StopAwaited&) = delete;
  StopAwaited& operator=(const StopAwaited&) = delete;
};

bool request_stop(int signal);  // false: no StopAwaited exists; async-signal-safe
int stop_signal();              // 0: none

}  // namespace shardline
