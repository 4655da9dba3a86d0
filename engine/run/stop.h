// Signals that ask a run to end, and how far the run has come when they arrive.
#pragma once

namespace shardline {

// preparing: nothing would be lost. training: the run checks for a request to stop after every step, until its model is
// saved. saved: nothing is left to stop. serving: what has been accepted is answered before the end.
enum class RunPhase { preparing, training, saved, serving };

void enter_phase(RunPhase phase);  // the phase of the process; its ranks enter a phase at about the same time
RunPhase run_phase();              // async-signal-safe, as are the functions below

// Records the first signal that asks the run to end. Returns whether the run was asked before. Signals that follow at
// once belong to the first one: a different signal for one second, because a closing terminal sends SIGHUP and SIGTERM,
// and the same signal for a fifth of a second, because `timeout` sends it to the process and to its group.
bool request_stop(int signal);
int stop_signal();  // the first one; 0: none

}  // namespace shardline
