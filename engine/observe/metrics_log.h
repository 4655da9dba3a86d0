// metrics.jsonl: one JSON object per line, completely written when the call returns. Steps have the keys of
// StepMetrics; evaluations have step, epoch and their values.
//
// JSON has no NaN and no infinity: such a number is written as null, and a field "non_finite": {"loss": "nan"} in the
// line states which of them it was.
#pragma once
#include <string>

#include "engine/observe/append_file.h"
#include "engine/observe/metrics.h"

namespace shardline {

// Removes the records of later steps, and an incomplete record of a killed run. Throws RunError.
void keep_metrics_until(const std::string& path, int64_t step);

class MetricsLog {
 public:
  // Creates the file or continues at its end. Throws RunError, as do the writes.
  explicit MetricsLog(const std::string& path) : file_(path) {}
  const std::string& path() const { return file_.path(); }

  void add(const StepMetrics& metrics);
  void add(const EvaluationMetrics& metrics);

 private:
  AppendFile file_;
};

}  // namespace shardline
