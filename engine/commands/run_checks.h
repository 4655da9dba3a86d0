// Checks of a training run before its ranks start and its texts are read. Both `plan` and `train` use them, so that
// `train` runs what `plan` accepts. Problems that only show when a text is read (how many tokens it has, a line that is
// not JSON) are reported when the run begins.
#pragma once
#include <string>
#include <vector>

#include "engine/commands/job_parts.h"

namespace shardline {

enum class RunMoment {
  planned,   // data files may not be there yet, and the machine that `cluster` names in a file may be another one
  starting,  // now and here
};

// Throws everything that is wrong as one ConfigError, or as one DataError if it is the data alone.
void check_run(const Config& config, const PlannedModel& planned, RunMoment moment);

// What would prevent a planned run from starting here and now although its config is correct: data that is not there
// yet, an output_dir that is in use or lacks room. One line each.
std::vector<std::string> obstacles_now(const Config& config, const ModelSpec& spec);

}  // namespace shardline
