// The part of Catch2 that runs cases, compiled once for all test programs.
#pragma once

namespace shardline::testing {

// Runs the cases that the command line selects and returns the exit code of the program. A filter that matches no case
// is a failure: otherwise a renamed case would seem to have passed.
int run_cases(int argc, char** argv);

}  // namespace shardline::testing
