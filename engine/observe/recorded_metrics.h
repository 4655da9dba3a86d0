// Reads metrics.jsonl, which MetricsLog writes.
#pragma once
#include <string>
#include <vector>

#include "engine/observe/metrics.h"

namespace shardline {

struct RecordedMetrics {
  std::vector<StepMetrics> steps;  // without peak_memory_bytes
  std::vector<EvaluationMetrics> evaluations;
  std::vector<RankMemory> most_memory;  // by rank, the maximum over the steps
};

// Ignores a last line that is not complete, because the run may be writing it. Throws DataError if the file cannot be
// read or a line is not a record.
RecordedMetrics read_metrics(const std::string& path);

}  // namespace shardline
