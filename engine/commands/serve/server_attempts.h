// A server from its start to its end, over restarts of the processes that serve.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

#include "engine/config/keys/options.h"

namespace shardline {

// Whether this process is to serve itself: serve_on_processes or mpirun has started it.
bool is_serving_process();

// Starts a process that serves with this program and `arguments`, or its ranks if the config needs mpirun, and again
// when it fails (ServerRestarts). Connections wait meanwhile, and only the requests inside a failed process fail.
// Passes signals on and prints to `log` what happens. Returns the program's exit code.
int serve_on_processes(const Config& config, const std::vector<std::string>& arguments, std::ostream& log);

}  // namespace shardline
