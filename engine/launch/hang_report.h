// Reports why a job ended, from its flight records: a line for each rank, then "error:" and the cause. The functions
// return "" if the records add nothing to the errors of the ranks. They do not throw, because the job's own errors are
// more important.
#pragma once
#include <iosfwd>
#include <optional>
#include <set>
#include <string>

#include "engine/launch/rank_messages.h"

namespace shardline {

// For the launcher. before: the jobs in the records when it started the ranks, that is, jobs of earlier runs.
std::string report_of_ended_job(const std::string& output_dir, const std::set<std::string>& before,
                                const std::optional<RankMessages::Killed>& killed);

// For ranks that were threads of this process.
std::string report_of_threads();

// For a rank of an mpirun that the user has started; the rank calls it before it ends the job. The first rank that
// calls it in this folder writes the report to `log`. The others wait until it has, at most a second: the first one
// that returns ends all of them.
void report_failing_rank(std::ostream& log);

}  // namespace shardline
