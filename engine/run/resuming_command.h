// The command line that continues a run.
#pragma once
#include <string>

namespace shardline {

// Open MPI passes variables that begin with OMPI_ on to ranks on other hosts.
inline constexpr const char* kCommandVariable = "OMPI_SHARDLINE_COMMAND";
// The launcher calls this to pass its own command line to the ranks that it starts, whose command lines have further
// settings.
void pass_command_to_ranks();

// The command line with which the user called the program (this process or its launcher), quoted for a shell, with
// training.resume_from_checkpoint set to `source` instead of any earlier value. If `source` is empty, the command line
// is unchanged; so is that of a container's job, which names no config and continues from its own checkpoints.
std::string resuming_command(const std::string& source);

}  // namespace shardline
