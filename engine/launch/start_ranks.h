// Starts ranks through mpirun, and reports errors.
#pragma once
#include <exception>
#include <iosfwd>
#include <string>
#include <vector>

#include "engine/config/keys/options.h"
#include "engine/launch/mpirun_process.h"
#include "engine/observe/progress.h"

namespace shardline {

// Starts the ranks with this program and `arguments`, prints the command to `log`, passes signals on and waits. Returns
// the program's exit code.
int start_ranks(const Config& config, const std::vector<std::string>& arguments, std::ostream& log);

// Runs the ranks once, without handling signals or printing the failure.
MpirunEnd run_ranks_of(const Config& config, const std::vector<std::string>& arguments, std::ostream& log);
int exit_code_of_program(const MpirunEnd& end);

// The console of standard output, also through mpirun; not a terminal if that is unknown.
Console console_of_job();

// Prints the error and returns the exit code: 2 for mistakes in the config or on the command line, 3 if the run stopped
// after saving a checkpoint, otherwise 1. A run that stopped is the first rank's to report: for the others 0.
int report_error(const std::exception& error, std::ostream& log);

// Call it when a rank of an MPI job fails: its message becomes the last one that the job prints, and the job's exit
// code that of its kind of error.
void end_job_with_message_of_failed_rank();

}  // namespace shardline
