// A training job from its start to its end, over restarts (mpi_options.max_restarts and elastic).
#pragma once
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "engine/config/keys/options.h"

namespace shardline {

struct TrainingJob {
  Config config;                       // with numbers for every "auto"
  std::vector<std::string> arguments;  // for its ranks
};

struct TrainingJobs {
  TrainingJob first;
  bool leaves_open;  // whether the user's config has "auto"
  // The job with further settings, as for --set; "auto" is chosen again. Throws ConfigError, or whatever check_train
  // throws, if it cannot start.
  std::function<TrainingJob(const std::vector<std::string>& settings)> with;
};

// Starts the ranks, and again after failures as the config allows. Prints to `log` what happens. Returns the program's
// exit code. Throws the error that prevents another start; Interrupted or StoppedAfterSaving if a signal arrives while
// no rank runs.
int train_on_ranks(const TrainingJobs& jobs, std::ostream& log);

}  // namespace shardline
