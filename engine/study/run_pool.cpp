#include "engine/study/run_pool.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <list>
#include <thread>
#include <utility>

#include "core/comm/clock.h"
#include "core/error.h"

namespace shardline {
namespace {

using namespace std::chrono_literals;

constexpr double kSecondsToStop = 60;  // for a program to end after it was asked to
constexpr auto kPause = 20ms;
constexpr int kExitNotStarted = 127;

int opened_for_output(const std::string& path) {
  return open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0666);
}

// Runs the program in place of the child process that calls this.
[[noreturn]] void become(const PoolProgram& program, char* const* argv) {
  setpgid(0, 0);  // a Ctrl-C ends the parent, and that ends this process
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGPIPE}) std::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int output = opened_for_output(program.output);
  const int errors = program.errors == program.output ? output : opened_for_output(program.errors);
  const int nothing = open("/dev/null", O_RDONLY);
  if (output < 0 || errors < 0 || nothing < 0) _exit(kExitNotStarted);
  dup2(nothing, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(errors, STDERR_FILENO);
  execv(argv[0], argv);
  _exit(kExitNotStarted);
}

class Running {
 public:
  explicit Running(const PoolProgram& program) : program_(&program), started_(steady_seconds()) {
    std::vector<std::string> words = program.command;
    std::vector<char*> argv;
    for (auto& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    process_ = fork();
    if (process_ < 0) throw RunError(cat("cannot start ", program.command[0], ": ", std::strerror(errno)));
    if (process_ == 0) become(program, argv.data());
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running() {  // it still runs only after an error elsewhere
    if (ended_) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }

  const PoolProgram& program() const { return *program_; }

  // Whether it has ended. Asks it to stop when its time is up.
  bool has_ended() {
    int status = 0;
    if (waitpid(process_, &status, WNOHANG) == process_) {
      ended_ = true;
      end_.seconds = steady_seconds() - started_;
      end_.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      return true;
    }
    const double over = steady_seconds() - started_ - program_->limit.count();
    if (over > 0 && !end_.timed_out) {
      end_.timed_out = true;
      kill(process_, SIGTERM);
    }
    if (over > kSecondsToStop) kill(-process_, SIGKILL);
    return false;
  }
  const ProgramEnd& end() const { return end_; }

 private:
  const PoolProgram* program_;
  double started_;
  pid_t process_ = -1;
  bool ended_ = false;
  ProgramEnd end_;
};

}  // namespace

void run_programs(const std::vector<PoolProgram>& programs, int cores, int at_once) {
  std::list<Running> running;
  size_t next = 0;
  int used = 0;
  const auto has_room = [&] {
    if (next == programs.size() || (at_once > 0 && std::cmp_greater_equal(running.size(), at_once))) return false;
    return running.empty() || used + programs[next].cores <= cores;
  };
  while (next < programs.size() || !running.empty()) {
    while (has_room()) {
      programs[next].starts();
      running.emplace_back(programs[next]);
      used += programs[next++].cores;
    }
    std::this_thread::sleep_for(kPause);
    for (auto one = running.begin(); one != running.end();) {
      if (!one->has_ended()) {
        ++one;
        continue;
      }
      const PoolProgram& program = one->program();
      const ProgramEnd end = one->end();
      used -= program.cores;
      one = running.erase(one);
      program.ends(end);
    }
  }
}

}  // namespace shardline
