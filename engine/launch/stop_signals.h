// The effect of SIGINT, SIGTERM and SIGHUP on a process that runs ranks.
#pragma once

namespace shardline {

// A training run ends after its current step, or as it would have ended if its model is saved already; everything else
// ends immediately, as does a training run after a second signal. `last_words` (a literal) is printed to standard
// error; ranks of mpirun leave that to their launcher, which may send them SIGUSR1 several times.
void handle_stop_signals(const char* last_words);

// Installs the handler for the signals that ask a run to stop. SIGHUP stays ignored if nohup has set that.
void set_stop_handler(void (*handler)(int signal));

}  // namespace shardline
