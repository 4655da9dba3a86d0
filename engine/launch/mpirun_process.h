// Starts mpirun and watches over its ranks: passes signals on, detects hosts that do not answer, and leaves no rank
// running.
#pragma once
#include <chrono>
#include <functional>
#include <iosfwd>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/comm/timeouts.h"
#include "engine/config/keys/options.h"
#include "engine/launch/rank_messages.h"

namespace shardline {

// From now on signals that ask a run to stop are counted instead of ending this process.
void count_stop_requests();
int stop_requests();

struct MpirunEnd {
  int exit_code = 0;    // see exit_codes.h
  std::string failure;  // "error: ..." lines with the cause; empty if exit_code is 0 or ranks have reported the cause
  std::set<News> news;  // what the ranks have reported
  bool asked_to_stop = false;  // by a signal to the launcher, or according to the ranks
  bool out_of_time = false;    // no rank has begun within the limit
};
// Runs the ranks and waits for them. What they write to standard error goes to `log`, except the failure. The first
// request to stop asks the ranks to finish their step, the second one ends them. When this returns, no rank is left on
// a host that answers; on other hosts, ranks end themselves within host_timeout. limit: until the first rank begins.
// explain: returns last lines of a failure, if it knows more than mpirun prints; it receives the rank that a signal
// killed, if any.
using ExplainFailure = std::function<std::string(const std::optional<RankMessages::Killed>& killed)>;
MpirunEnd run_mpirun(const std::vector<std::string>& command, std::chrono::seconds host_timeout, const TimeLimit& limit,
                     std::ostream& log, const ExplainFailure& explain);

TimeLimit start_limit(const Config& config);  // for run_mpirun

// After run_mpirun: returns the hosts on which mpirun, with the options of the config, can start a program now. Ends
// early if the user asks the run to stop.
std::vector<std::string> hosts_that_answer(const Config& config, const std::vector<std::string>& hosts);

}  // namespace shardline
