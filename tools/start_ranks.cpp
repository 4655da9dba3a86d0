#include "tools/start_ranks.h"

#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "core/error.h"
#include "core/mpi_communicator.h"
#include "engine/ranks.h"
#include "engine/stop.h"

namespace shardline {
namespace {

constexpr const char* kConsole = "SHARDLINE_CONSOLE_COLUMNS";  // 0: not a terminal

volatile sig_atomic_t mpirun_pid = 0;
void pass_on(int signal) { kill(mpirun_pid, signal == SIGINT ? SIGTERM : signal); }

std::string quoted(const std::string& word) {
  return word.find_first_of(" \t\"'$&;|<>*?") == std::string::npos ? word : "'" + word + "'";
}

}  // namespace

int start_ranks(const Config& config, const std::vector<std::string>& arguments, std::ostream& log) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  const auto command = mpirun_command(config, program, arguments);
  log << "$";
  for (const auto& word : command) log << ' ' << quoted(word);
  log << std::endl;

  // Ranks share cores where they are too many: waiting ones give theirs away. Root is refused by default.
  setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
  setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
  // mpirun gives its ranks a terminal of their own; what they should write for is this process's.
  const Console console = console_of(1);
  setenv(kConsole, console.terminal ? std::to_string(console.columns).c_str() : "0", 1);
  if (geteuid() == 0) {
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
  }
  const pid_t child = fork();
  if (child < 0) throw RunError(cat("cannot start mpirun: ", std::strerror(errno)));
  if (child == 0) {
    std::vector<char*> argv;
    for (const auto& word : command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    setpgid(0, 0);  // a Ctrl-C reaches the ranks once, through mpirun
    execvp(argv[0], argv.data());
    std::cerr << "error: cannot start mpirun: " << std::strerror(errno) << "; install Open MPI, or use runtime.communicator=threads\n";
    _exit(2);
  }
  mpirun_pid = child;
  std::signal(SIGINT, pass_on);
  std::signal(SIGTERM, pass_on);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) {
    log << "error: mpirun was ended by signal " << WTERMSIG(status) << '\n';
    return 1;
  }
  return WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 2 ? WEXITSTATUS(status) : 1;
}

int report_error(const std::exception& error, std::ostream& log) {
  log << "error: " << error.what() << std::endl;
  return dynamic_cast<const ConfigError*>(&error) ? 2 : 1;
}

Console console_of_job() {
  const char* columns = std::getenv(kConsole);
  if (!columns || !mpi_is_launched()) return console_of(1);
  const int width = std::atoi(columns);
  return width > 0 ? Console{true, width} : Console{};
}

void end_job_with_message_of_failed_rank() {
  set_mpi_abort_handler([](const std::string& reason) {
    std::cerr << "error: rank " << current_rank() << ": " << reason << std::endl;
  });
}

void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
}

}  // namespace shardline
