// What SIGINT, SIGTERM and SIGHUP do to a process that runs ranks.
#pragma once

namespace shardline {

// A training run ends after its current step, or as it would have ended if its model is saved already; everything else
// ends immediately, as does a training run after a second signal. `last_words` (a literal) are for standard error;
// ranks of mpirun leave them to their launcher, which sends them SIGUSR1 as often as it likes.
void handle_stop_signals(const char* last_words);

// Whether the signal is SIGHUP and nohup keeps it away from the process.
bool ignores_hangup(int signal);

}  // namespace shardline
