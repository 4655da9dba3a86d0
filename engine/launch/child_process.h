// Processes that the launcher starts.
#pragma once
#include <sys/types.h>
#include <sys/wait.h>

#include <optional>
#include <string>
#include <vector>

namespace shardline {

// Starts the command in a process group of its own, which ends if this process does. It reads nothing and writes errors
// to the descriptor. If there is no such program, the process says so with the advice, and ends with kExitConfig.
// Throws RunError.
pid_t start_child(const std::vector<std::string>& command, int errors, const std::string& advice);

// The status of a child that has ended. If other code has waited for the child, its status is unknown: a failure.
std::optional<int> status_if_ended(pid_t child, int options = WNOHANG);

}  // namespace shardline
