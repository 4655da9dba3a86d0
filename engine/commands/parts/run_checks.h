// Checks of a training run before its ranks start and its texts are read. `plan` and `train` make the same checks, so
// that `train` runs what `plan` accepts. Problems that only show when a text is read (how many tokens it has, a line
// that is not JSON) are reported when the run begins.
#pragma once
#include <string>
#include <vector>

#include "engine/commands/parts/job_parts.h"

namespace shardline {

enum class RunMoment {
  planned,   // data files may still be missing, and the machine may be another one if `cluster` names a file
  starting,  // the run starts now, on this machine
};

// Throws everything that is wrong as one ConfigError, or as one DataError if only the data is wrong.
void check_run(const Config& config, const PlannedModel& planned, RunMoment moment);

// Returns one line for each obstacle that would prevent a planned run with a correct config from starting on this
// machine now: missing data, no checkpoint to continue, an output_dir that is in use or too full.
std::vector<std::string> obstacles_now(const Config& config, const ModelSpec& spec);

}  // namespace shardline
