#include "engine/launch/stop_signals.h"

#include <unistd.h>

#include <csignal>
#include <cstring>

#include "core/comm/mpi_communicator.h"
#include "engine/run/stop.h"

namespace shardline {
namespace {

const char* words = "";

void on_signal(int signal) {
  const bool again = signal != SIGUSR1 && stop_signal() != 0;
  if (request_stop(signal) && !again) return;
  const char* text = again ? "error: ended by a second signal; the trained weights are lost\n" : words;
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text, std::strlen(text));
  ::_exit(1);
}

// The last line should be that of the rank that failed, not of those that mpirun ends afterwards.
void on_signal_of_mpirun(int signal) {
  const bool again = signal != SIGUSR1 && stop_signal() != 0;
  if (!request_stop(signal) || again) ::_exit(1);
}

}  // namespace

bool ignores_hangup(int signal) {
  struct sigaction action = {};
  return signal == SIGHUP && ::sigaction(SIGHUP, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

void handle_stop_signals(const char* last_words) {
  words = last_words;
  const auto handler = mpi_is_launched() ? on_signal_of_mpirun : on_signal;
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGHUP})
    if (!ignores_hangup(signal)) std::signal(signal, handler);
}

}  // namespace shardline
