// Starting ranks through mpirun, and what the launcher says when something fails.
#pragma once
#include <exception>
#include <iosfwd>
#include <string>
#include <vector>

#include "engine/config/keys/options.h"
#include "engine/observe/progress.h"

namespace shardline {

// Starts the ranks with this program and `arguments`, prints the command to `log`, passes signals on and waits. Returns
// the program's exit code.
int start_ranks(const Config& config, const std::vector<std::string>& arguments, std::ostream& log);

// What standard output is for the user, even through mpirun; not a terminal if that cannot be known.
Console console_of_job();

// Prints the error with the rank it came from and returns the exit code: 2 for the config's or command line's fault,
// else 1.
int report_error(const std::exception& error, std::ostream& log);

// When a rank of an MPI job fails: its message is the last one that the job prints, and the job's exit code is that of
// its kind.
void end_job_with_message_of_failed_rank();

}  // namespace shardline
