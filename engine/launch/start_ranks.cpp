#include "engine/launch/start_ranks.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <mutex>
#include <thread>
#include <utility>

#include "core/comm/mpi_communicator.h"
#include "core/error.h"
#include "core/flight/flight_ring.h"
#include "engine/config/rules/shell_words.h"
#include "engine/launch/hang_report.h"
#include "engine/launch/rank_messages.h"
#include "engine/launch/stop_signals.h"
#include "engine/run/ranks.h"

namespace shardline {
namespace {

constexpr int kExitStopped = 3;
constexpr const char* kConsole = "SHARDLINE_CONSOLE_COLUMNS";  // 0: not a terminal

std::atomic<int> stop_requests{0};
void count_request(int) {
  ++stop_requests;
}

void set_environment_of_ranks() {
  // If there are more ranks than cores, waiting ranks yield theirs. Open MPI refuses root by default.
  setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
  // mpirun gives its ranks a terminal of their own; they should format their output for this process's.
  const Console console = console_of(1);
  setenv(kConsole, console.terminal ? std::to_string(console.columns).c_str() : "0", 1);
  if (geteuid() == 0) {
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
  }
}

// In the child process: becomes mpirun, which writes its errors into `errors` and reads nothing.
[[noreturn]] void become_mpirun(const std::vector<std::string>& command, int errors) {
  setpgid(0, 0);                     // a Ctrl-C reaches the ranks once, through the launcher
  prctl(PR_SET_PDEATHSIG, SIGTERM);  // mpirun ends if the launcher is killed
  std::signal(SIGUSR1, SIG_IGN);     // until the ranks are ready for it; the launcher repeats it
  dup2(errors, STDERR_FILENO);
  if (const int nothing = open("/dev/null", O_RDONLY); nothing >= 0) dup2(nothing, STDIN_FILENO);
  std::vector<char*> argv;
  for (const auto& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  std::cerr << "error: cannot start mpirun: " << std::strerror(errno)
            << "; install Open MPI, or use runtime.communicator=threads" << std::endl;
  _exit(2);
}

// Reads what mpirun writes, passes requests to stop on, and returns mpirun's status when it has ended.
int wait_for_mpirun(pid_t mpirun, int errors, RankMessages& messages) {
  auto signal_at = std::chrono::steady_clock::now();
  for (int status = 0;;) {
    const bool ended = waitpid(mpirun, &status, WNOHANG) == mpirun;
    pollfd readable{.fd = errors, .events = POLLIN};
    char bytes[4096];
    ssize_t count = -1;
    while (poll(&readable, 1, ended ? 0 : 200) > 0 && (count = read(errors, bytes, sizeof bytes)) > 0) {
      messages.add({bytes, static_cast<size_t>(count)});
      if (!ended) break;
    }
    if (ended) return status;
    if (count == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    // mpirun passes SIGUSR1 on to the ranks, which finish their step; SIGTERM ends them within a second.
    if (stop_requests == 0 || std::chrono::steady_clock::now() < signal_at) continue;
    kill(mpirun, stop_requests > 1 ? SIGTERM : SIGUSR1);
    signal_at = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  }
}

}  // namespace

int start_ranks(const Config& config, const std::vector<std::string>& arguments, std::ostream& log) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  const auto command = mpirun_command(config, program, arguments);
  log << "$";
  for (const auto& word : command) log << ' ' << shell_quoted(word);
  log << std::endl;
  set_environment_of_ranks();
  const auto began = std::chrono::system_clock::now();

  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1})
    if (!ignores_hangup(signal)) std::signal(signal, count_request);
  int errors[2];
  if (pipe2(errors, O_CLOEXEC) != 0) throw RunError(cat("cannot make a pipe: ", std::strerror(errno)));
  const pid_t mpirun = fork();
  if (mpirun < 0) throw RunError(cat("cannot start mpirun: ", std::strerror(errno)));
  if (mpirun == 0) become_mpirun(command, errors[1]);
  close(errors[1]);
  RankMessages messages(log);
  const int status = wait_for_mpirun(mpirun, errors[0], messages);
  close(errors[0]);

  if (WIFSIGNALED(status) && stop_requests == 0) {
    log << "error: mpirun was ended by signal " << WTERMSIG(status) << " (" << strsignal(WTERMSIG(status)) << ")\n";
    return 1;
  }
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  if (code == kExitStopped) return code;  // rank 0 has said why, and how to continue
  if (code != 0)
    messages.tell_failure(code, stop_requests > 0,
                          code == 2 ? "" : report_of_ended_job(config.output_dir, began, messages.killed_rank()));
  return code == 0 || code == 2 ? code : 1;
}

int report_error(const std::exception& error, std::ostream& log) {
  // A thread may report the same error as the end of all threads (stuck_threads.h); once is enough.
  static std::mutex one_at_a_time;
  static bool reported = false;
  const std::lock_guard lock(one_at_a_time);
  const bool saved = dynamic_cast<const StoppedAfterSaving*>(&error);
  if (!std::exchange(reported, true)) {
    if (!saved)
      log << "error: " << error.what() << '\n';
    else if (current_rank() <= 0)
      log << error.what() << '\n';
    if (dynamic_cast<const DistributedError*>(&error)) log << report_of_threads();
    log << std::flush;
  }
  if (saved) return kExitStopped;
  return dynamic_cast<const ConfigError*>(&error) ? 2 : 1;
}

Console console_of_job() {
  if (!mpi_is_launched()) return console_of(1);
  // An mpirun that was started by hand gives ranks a terminal whatever its own output is.
  const char* columns = std::getenv(kConsole);
  if (!columns) return Console{};
  const int width = std::atoi(columns);
  return width > 0 ? Console{true, width} : Console{};
}

void end_job_with_message_of_failed_rank() {
  set_mpi_abort_handler([](const std::string& reason) {
    flight_ring().end_rank(current_rank(), FlightEnd::gave_up, reason);  // unless the rank has said more
    std::cerr << rank_error(current_rank(), reason) << std::flush;
    if (std::getenv(kConsole) == nullptr) std::cerr << report_of_failing_rank() << std::flush;
    try {
      if (std::current_exception()) throw;
    } catch (const ConfigError&) {
      std::_Exit(2);  // mpirun ends the other ranks and returns this code
    } catch (...) {
    }
  });
}

}  // namespace shardline
