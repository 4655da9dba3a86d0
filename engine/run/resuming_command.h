// The command line that continues a run.
#pragma once
#include <string>

namespace shardline {

// The command line with which this process was called, quoted for a shell, with training.resume_from_checkpoint set to
// `source` instead of any earlier value. If `source` is empty, the command line is unchanged.
std::string resuming_command(const std::string& source);

}  // namespace shardline
