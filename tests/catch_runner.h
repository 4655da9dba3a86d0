// The part of Catch2 that runs cases, compiled once for all test programs.
#pragma once

namespace shardline::testing {

// Runs the cases that the command line selects and returns the exit code of the program. A filter that matches no case
// is a failure: a case that was renamed must not pass for one that ran.
int run_cases(int argc, char** argv);

}  // namespace shardline::testing
