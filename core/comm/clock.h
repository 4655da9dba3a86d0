// Time within a job: one monotonic clock per host, and the offset between the clocks of hosts.
#pragma once

namespace shardline {

class Communicator;

// Seconds since an arbitrary moment in the past, which all processes of a host share.
double steady_seconds();

// The offset that this rank adds to its steady_seconds() to get rank 0's. It is estimated from the fastest of several
// round trips, as in Cristian's algorithm (1989). If it is at most half of that trip, the error of the estimate, 0 is
// returned, as for ranks of one host, which share a clock. Collective.
double clock_offset(Communicator& world);

}  // namespace shardline
