// Processes that the launcher starts.
#pragma once
#include <sys/types.h>
#include <sys/wait.h>

#include <optional>
#include <string>
#include <vector>

namespace shardline {

// Starts the command in a new process group, which is killed when this process ends. Its standard input is empty, and
// its standard error goes to the descriptor `errors`. If the program does not exist, the child prints that with the
// advice and exits with kExitConfig. Throws RunError if no process can be started.
pid_t start_child(const std::vector<std::string>& command, int errors, const std::string& advice);

// The exit status of a child that has ended; unset while it runs. If other code has already waited for the child, its
// status is unknown and counts as a failure.
std::optional<int> status_if_ended(pid_t child, int options = WNOHANG);

}  // namespace shardline
