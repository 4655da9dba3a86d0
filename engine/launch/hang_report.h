// What the flight records say about the end of a job beyond the errors of its ranks: a line for each rank, then
// "error:" and the cause. All return "" where the records do not say more. None throws: the job's own errors are worth
// more.
#pragma once
#include <chrono>
#include <optional>
#include <string>

#include "engine/launch/rank_messages.h"

namespace shardline {

// For the launcher of ranks, which has started them at `began`: it may find records of an earlier run.
std::string report_of_ended_job(const std::string& output_dir, std::chrono::system_clock::time_point began,
                                const std::optional<RankMessages::Killed>& killed);

// For ranks that were threads of this process.
std::string report_of_threads();

// For a rank of an mpirun that the user has started, before it ends the job. Of the ranks of a folder, the first one
// that calls this gets the report.
std::string report_of_failing_rank();

}  // namespace shardline
