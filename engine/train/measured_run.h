// Statistics of a run, read from its metrics.jsonl.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace shardline {

struct MeasuredRun {
  int64_t steps = 0;        // measured steps: all but the first one, which is slower, if there are others
  double step_seconds = 0;  // medians
  double bubble_fraction = 0;
  double tokens_per_second = 0;
  std::vector<double> counted_bytes;  // by rank, the maximum; 0 if not counted
};

// Reads output_dir/metrics.jsonl; keeps three numbers per step and one per rank. Throws ConfigError if it has no step,
// DataError for lines that cannot be read.
MeasuredRun measured_run(const std::string& output_dir);

}  // namespace shardline
