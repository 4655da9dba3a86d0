// A signal that asks the run to end after its current step.
#pragma once

namespace shardline {

void request_stop(int signal);  // async-signal-safe
int stop_signal();              // 0: none

}  // namespace shardline
