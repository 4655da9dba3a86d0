// The commands of the program `shardline`.
#pragma once

namespace shardline {

// Runs the command and returns the program's exit code. Throws what the command throws.
int run_command_line(int argc, char** argv);

}  // namespace shardline
