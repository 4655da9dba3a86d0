#include "engine/launch/child_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <iostream>

#include "core/error.h"
#include "engine/launch/exit_codes.h"

namespace shardline {
namespace {

// Runs the command in place of the child process that calls this.
[[noreturn]] void become(const std::vector<std::string>& command, int errors, const std::string& advice) {
  setpgid(0, 0);                     // a Ctrl-C reaches the command once, through the launcher
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // it ends if the launcher is killed
  std::signal(SIGUSR1, SIG_IGN);     // until ranks are ready for it; the launcher repeats it
  // Batch systems and containers signal every process of a job. mpirun would kill the ranks before they have saved.
  sigset_t stops;
  sigemptyset(&stops);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&stops, signal);
  sigprocmask(SIG_SETMASK, &stops, nullptr);  // shardline itself handles them from its start
  dup2(errors, STDERR_FILENO);
  if (const int nothing = open("/dev/null", O_RDONLY); nothing >= 0) dup2(nothing, STDIN_FILENO);
  std::vector<char*> argv;
  for (const auto& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  std::cerr << "error: cannot start " << command[0] << ": " << std::strerror(errno) << "; " << advice << std::endl;
  _exit(kExitConfig);
}

}  // namespace

pid_t start_child(const std::vector<std::string>& command, int errors, const std::string& advice) {
  std::signal(SIGCHLD, SIG_DFL);  // a parent may have left it ignored: then waiting for children fails
  const pid_t child = fork();
  if (child < 0) throw RunError(cat("cannot start ", command[0], ": ", std::strerror(errno)));
  if (child == 0) become(command, errors, advice);
  return child;
}

std::optional<int> status_if_ended(pid_t child, int options) {
  int status = 0;
  const pid_t ended = waitpid(child, &status, options);
  if (ended == child) return status;
  return ended < 0 && errno == ECHILD ? std::optional(W_EXITCODE(kExitFailed, 0)) : std::nullopt;
}

}  // namespace shardline
