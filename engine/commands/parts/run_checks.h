// Checks of a training run before its ranks start and its texts are read. `plan` and `train` make the same checks, so
// that `train` runs what `plan` accepts. Problems that only show when a text is read (how many tokens it has, a line
// that is not JSON) are reported when the run begins.
#pragma once
#include <cstdint>
#include <functional>
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

// Throws a ConfigError if an exported program of fixed sizes does not take the samples and microbatches that the config
// makes. trains: false if the program is only evaluated.
void check_fixed_sizes(const Config& config, const ModelSource& model, const Layout& layout, bool trains);

// A program of fixed sizes that computes its loss for all samples of a microbatch as a whole cannot fill up
// microbatches. Throws ConfigError("KEY: ...") if one of the `steps` batches of a source has microbatches that are
// neither empty nor whole. microbatches: per replica.
struct FilledBatches {
  const char* key;
  int64_t steps;
  std::function<int64_t(int64_t step)> samples_in_step;
  int microbatches;
};
void check_filled(const FilledBatches& batches, const ModelSpec& spec, int replicas);

// Returns one line for each obstacle that would prevent a planned run with a correct config from starting on this
// machine now: missing data, no checkpoint to continue, an output_dir that is in use or too full.
std::vector<std::string> obstacles_now(const Config& config, const ModelSpec& spec);

}  // namespace shardline
