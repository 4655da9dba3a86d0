// The effect of SIGINT, SIGTERM, SIGHUP and SIGUSR1 on a process that runs ranks.
#pragma once
#include <csignal>

#include "engine/launch/exit_codes.h"

namespace shardline {

// A training run ends after its current step, or as it would have ended if its model is already saved. Everything else
// ends immediately, as does a training run before its first step, or after a second signal. A process that ends before
// its first step prints `last_words` (a literal) to standard error and ends with `exit_code`, and one that trains
// prints that it will stop. Ranks that mpirun has started print nothing and ignore any further SIGUSR1; if a launcher
// started them, it prints this and handles the second signal.
void handle_stop_signals(const char* last_words, int exit_code = kExitFailed);

// Installs the handler for the signals that ask a run to stop. None of these signals interrupts it. SIGHUP stays
// ignored if nohup has set this. From then on, the calling thread and the threads that it starts block these signals,
// as do its child processes until they change that, and a thread of its own takes them: a handler must not run on a
// thread that computes, because some kernels of oneDNN 2 use the stack pointer as another register, and the frame of
// the handler would overwrite their memory.
void set_stop_handler(void (*handler)(int signal, siginfo_t* from, void* context));
// Whether the signal asks a run to stop.
bool asks_to_stop(int signal);

}  // namespace shardline
