// Times in records are those of each host's clock. Clocks that differ would make one host seem to end before another.
#pragma once
#include <string>
#include <vector>

#include "engine/observe/doctor/diagnosis.h"

namespace shardline {

// Collectives in which every rank needs something of all others show how far clocks are apart, because none ends on one
// host before it has begun on all others. Where they exclude that two clocks agree, changes all times of a host to
// about those of the reference: the host whose clock is that of now_ns, or else that of the lowest rank. Returns the
// hosts that were changed.
std::vector<ClockDifference> align_clocks(JobRecords& job);

// The host of a rank that has records.
const std::string& host_of(const JobRecords& job, int rank);

}  // namespace shardline
