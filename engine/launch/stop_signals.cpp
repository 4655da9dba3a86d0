#include "engine/launch/stop_signals.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <thread>

#include "core/comm/mpi_communicator.h"
#include "engine/run/launcher_news.h"
#include "engine/run/stop.h"

namespace shardline {
namespace {

constexpr std::array kStopSignals = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};

const char* words = "";
int code_of_words = kExitFailed;

// Records the request. Returns whether it ends the process at once, because nothing would be lost or because it is the
// second one.
bool ends_at_once(int signal, bool may_be_second) {
  const bool again = request_stop(signal) && may_be_second;
  return again || run_phase() == RunPhase::preparing;
}

const char* words_now() {
  switch (run_phase()) {
    case RunPhase::preparing:
      return words;
    case RunPhase::training:
      return "error: ended by a second signal; the steps since the last checkpoint are lost\n";
    case RunPhase::serving:
      return "error: ended by a second signal; some requests are not answered\n";
    case RunPhase::saved:
      return "error: ended by a second signal; the model is saved, but the run had not finished\n";
  }
  return "";
}

void print(const char* text) {
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text, std::strlen(text));
}

void on_signal(int signal, siginfo_t*, void*) {
  const bool is_first = stop_signal() == 0;
  if (ends_at_once(signal, /*may_be_second=*/true)) {
    print(words_now());
    ::_exit(run_phase() == RunPhase::preparing ? code_of_words : kExitFailed);
  }
  if (is_first && run_phase() == RunPhase::training)
    print("received a signal: the run stops after its current step; a second signal ends it immediately\n");
}

// The last line should come from the rank that failed, not from those that mpirun, its parent, ends afterwards.
void on_signal_of_mpirun(int signal, siginfo_t* from, void*) {
  // A launcher's mpirun passes requests to stop on as SIGUSR1; with SIGTERM it ends the ranks of a job that has failed.
  // Ranks that serve have nothing to save, and may be waiting for the rank that has failed.
  if (has_launcher() && signal == SIGTERM && from->si_pid == ::getppid() && run_phase() == RunPhase::serving)
    ::_exit(1);
  // A rank may receive the first signal twice, from a batch system and from mpirun, which passes SIGUSR1 on. It leaves
  // the second one to its launcher, which repeats the first.
  if (!ends_at_once(signal, /*may_be_second=*/signal != SIGUSR1 && !has_launcher())) return;
  if (from->si_pid != ::getppid()) tell_launcher(News::stops);
  ::_exit(1);
}

sigset_t stop_signals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : kStopSignals) ::sigaddset(&signals, signal);
  return signals;
}

// Signals that have arrived since they were blocked are delivered to this thread.
void start_thread_for_signals() {
  static std::once_flag once;
  std::call_once(once, [] {
    const sigset_t signals = stop_signals();
    ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    std::thread([signals] {
      ::pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
      while (true) ::pause();
    }).detach();
  });
}

}  // namespace

void set_stop_handler(void (*handler)(int signal, siginfo_t* from, void* context)) {
  struct sigaction action = {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  action.sa_mask = stop_signals();
  for (const int signal : kStopSignals) {
    struct sigaction now = {};
    const bool is_ignored = ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
    if (signal != SIGHUP || !is_ignored) ::sigaction(signal, &action, nullptr);
  }
  start_thread_for_signals();
}

bool asks_to_stop(int signal) {
  return std::ranges::find(kStopSignals, signal) != kStopSignals.end();
}

void handle_stop_signals(const char* last_words, int exit_code) {
  words = last_words;
  code_of_words = exit_code;
  tell_launcher(News::started);
  set_stop_handler(mpi_is_launched() ? on_signal_of_mpirun : on_signal);
}

}  // namespace shardline
