// Writes the timelines of the steps that the config names to output_dir/timeline.
#pragma once
#include <cstdint>

#include "engine/observe/timeline.h"
#include "engine/plan/plan.h"
#include "engine/run/ranks.h"
#include "engine/run/run_records.h"

namespace shardline {

class StepTimelines {
 public:
  // Collective if the config wants timelines: it compares the ranks' clocks.
  StepTimelines(const Config& config, const Plan& plan, const RankContext& context, RunRecords& run);

  // Call them before and after a step, on every rank. `finish` sends the records to rank 0, which writes step-N.json
  // and step-N.html; what it cannot write is a gap in `run`. Both do nothing at other steps.
  void begin(int64_t step);
  void finish(int64_t step, StepRecords records);

 private:
  bool wants(int64_t step) const;
  void write(int64_t step, const RankTimeline& mine, double zero);

  const Config& config_;
  const Plan& plan_;
  const RankContext& context_;
  RunRecords& run_;
  double offset_ = 0;
  uint64_t first_flight_ = 1;
};

}  // namespace shardline
