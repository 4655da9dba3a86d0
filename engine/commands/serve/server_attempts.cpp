#include "engine/commands/serve/server_attempts.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <ostream>
#include <thread>

#include "core/comm/mpi_communicator.h"
#include "core/error.h"
#include "engine/commands/serve/server_restarts.h"
#include "engine/launch/child_process.h"
#include "engine/launch/exit_codes.h"
#include "engine/launch/start_ranks.h"
#include "engine/run/ranks.h"
#include "engine/run/stop.h"
#include "engine/serve/http/socket_keeper.h"

namespace shardline {
namespace {

using namespace std::chrono_literals;

// Passes on requests to stop. After the second one it repeats the signal, because a process may receive signals in
// quick succession as one.
int status_of_process(pid_t process) {
  int passed_on = 0;
  while (true) {
    if (const auto status = status_if_ended(process)) return *status;
    const int requests = stop_requests();
    if (requests > passed_on || requests > 1) kill(process, SIGTERM);
    passed_on = requests;
    std::this_thread::sleep_for(50ms);
  }
}

MpirunEnd run_process(const std::vector<std::string>& arguments) {
  std::vector<std::string> command = {std::filesystem::read_symlink("/proc/self/exe")};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const pid_t process = start_child(command, STDERR_FILENO, "start the server again");
  const int status = status_of_process(process);
  MpirunEnd end{.exit_code = kExitFailed, .failure = "", .news = {}, .asked_to_stop = stop_requests() > 0};
  if (WIFEXITED(status)) end.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status))
    end.failure = cat("error: the process that serves (", process, ") was killed by signal ", WTERMSIG(status), " (",
                      strsignal(WTERMSIG(status)), ")\n");
  return end;
}

}  // namespace

bool is_serving_process() {
  return mpi_is_launched() || has_socket_keeper();
}

int serve_on_processes(const Config& config, const std::vector<std::string>& arguments, std::ostream& log) {
  count_stop_requests();
  SocketKeeper keeper;
  ServerRestarts restarts;
  while (true) {
    const MpirunEnd end = needs_mpirun(config) ? run_ranks_of(config, arguments, log) : run_process(arguments);
    ServerEnd counted{.exit_code = end.exit_code, .asked_to_stop = end.asked_to_stop};
    if (const auto begin = keeper.take_begin())
      counted.served = std::chrono::duration_cast<std::chrono::seconds>(SocketKeeper::Clock::now() - *begin);
    if (!restarts.again_after(counted)) {
      if (!restarts.reason().empty()) log << restarts.reason() << '\n';
      log << end.failure << std::flush;
      return exit_code_of_program(end);
    }
    log << lines_without_prefix(end.failure) << "restarting the server; connections wait meanwhile" << std::endl;
  }
}

}  // namespace shardline
