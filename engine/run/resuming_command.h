// The command line that continues a run.
#pragma once
#include <string>

namespace shardline {

// That of this process, as it was called and quoted for a shell, with training.resume_from_checkpoint set to `source`,
// which replaces an earlier setting. Empty: as it is.
std::string resuming_command(const std::string& source);

}  // namespace shardline
