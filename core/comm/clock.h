// Time within a job: one monotonic clock per host, and the offset between the clocks of hosts.
#pragma once

namespace shardline {

class Communicator;

// Seconds since some moment in the past; the same for all processes of a host.
double steady_seconds();

// The difference that this rank adds to its steady_seconds() to get rank 0's. It is estimated from the fastest of
// several round trips, as in Cristian's algorithm (1989). The result is 0 if the difference is at most half of that
// trip, which is the error of the estimate; ranks of one host share a clock, so theirs is. Collective.
double clock_offset(Communicator& world);

}  // namespace shardline
