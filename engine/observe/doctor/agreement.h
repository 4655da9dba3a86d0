// Whether the ranks of a group asked for the same operations in the same order.
#pragma once
#include <map>
#include <optional>
#include <vector>

#include "engine/observe/doctor/diagnosis.h"

namespace shardline {

bool is_message(const FlightRecord& record);
FlightStream stream_of(const FlightRecord& record);
// The stream in which the other side of an operation counts it, and the peer under which it does.
FlightStream counterpart(const FlightRecord& record);
int counterpart_peer(const FlightRecord& record, const FlightGroup& group);

// The earliest operation for which ranks asked for different things.
struct Disagreement {
  FlightRecord usual, odd;     // what most ranks asked for, or the lowest; what another one did
  std::vector<int> odd_ranks;  // ascending; all that differ, if no request has a majority
  bool skips = false;          // the odd ranks asked for what comes next for the others
};

// groups: those of the job by id.
std::optional<Disagreement> first_disagreement(const JobRecords& job,
                                               const std::map<uint64_t, const FlightGroup*>& groups);

}  // namespace shardline
