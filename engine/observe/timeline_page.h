// A step as a picture in one self-contained HTML file.
#pragma once
#include <string>
#include <vector>

#include "engine/observe/timeline.h"
#include "pipeline/schedule/schedule.h"

namespace shardline {

// The work of every rank, above the work that the simulator predicts for the schedule at the mean measured cost of each
// instruction on each stage, without time for messages. Both have the same scale and state their idle shares.
std::string timeline_page(const Mesh& mesh, const Schedule& schedule, int64_t step,
                          const std::vector<RankTimeline>& ranks);

// Returns the simulated time from the first instruction to the last, at the mean measured costs of these ranks.
double predicted_seconds(const Mesh& mesh, const Schedule& schedule, const std::vector<RankTimeline>& ranks);

}  // namespace shardline
