// From the words of a config to a schedule, in one place.
#pragma once
#include <string>
#include <vector>

#include "pipeline/schedule/schedule.h"

namespace shardline {

struct ScheduleChoice {
  std::string pipeline = "interleaved";  // a name of schedule_names(), or a path that is_schedule_file
  int stages = 1;
  int microbatches = 1;
  int chunks_per_stage = 1;     // v; only "interleaved_1f1b" has a choice
  int active_microbatches = 0;  // 0: what the schedule needs
};

const std::vector<std::string>& schedule_names();
bool is_schedule_file(const std::string& pipeline);  // by its ending

// Throws ConfigError: unknown names, v where the schedule sets it, a bound below the schedule's minimum (1; for a file
// what it keeps active), and what is wrong with a file. The result passes check_schedule.
Schedule make_schedule(const ScheduleChoice& choice);

}  // namespace shardline
