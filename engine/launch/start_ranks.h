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

// The exit code of a program that ends with this error: 2 for mistakes in the config or on the command line, 3 for a
// run that was stopped and can continue from a checkpoint (StoppedAfterSaving; 0 on ranks other than the first),
// otherwise 1.
int exit_code_of(const std::exception& error);

// Prints the error and returns its exit code. Only the first rank reports that a run was stopped.
int report_error(const std::exception& error, std::ostream& log);

// Arranges that when a rank of an MPI job fails, its message is the last one that the job prints, and the job's exit
// code is the one for this kind of error. Call it once, at the start of the process.
void end_job_with_message_of_failed_rank();

}  // namespace shardline
