// Times in records come from the clock of each host. Clocks that differ would make one host seem to end before another.
#pragma once
#include <string>
#include <vector>

#include "engine/observe/doctor/diagnosis.h"

namespace shardline {

// Collectives in which every rank needs data from all others show how far clocks are apart, because such a collective
// does not end on any host before it has begun on all others. If they show that two clocks cannot agree, shifts all
// times of a host to approximate the clock of the reference: the host whose clock is that of now_ns, or else the host
// of the lowest rank. Returns the hosts that were changed.
std::vector<ClockDifference> align_clocks(JobRecords& job);

// The host of a rank that has records.
const std::string& host_of(const JobRecords& job, int rank);

}  // namespace shardline
