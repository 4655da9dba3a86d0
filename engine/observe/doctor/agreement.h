// Whether the ranks of a group requested the same operations in the same order.
#pragma once
#include <map>
#include <optional>
#include <vector>

#include "engine/observe/doctor/diagnosis.h"

namespace shardline {

bool is_message(const FlightRecord& record);
FlightStream stream_of(const FlightRecord& record);
// The stream and the peer under which the rank at the other end of a message counts it.
FlightStream counterpart(const FlightRecord& record);
int counterpart_peer(const FlightRecord& record, const FlightGroup& group);

// The earliest operation at which ranks requested different things.
struct Disagreement {
  FlightRecord usual, odd;     // the request of most ranks, or of the lowest rank; and a different request
  std::vector<int> odd_ranks;  // ascending; all that differ, if no request has a majority
  bool skips = false;          // the odd ranks requested the operation that comes next on the others
};

// groups: of the job, by id.
std::optional<Disagreement> first_disagreement(const JobRecords& job,
                                               const std::map<uint64_t, const FlightGroup*>& groups);

}  // namespace shardline
