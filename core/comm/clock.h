// Time within a job: one monotonic clock per host, and the offset between the clocks of hosts.
#pragma once

namespace shardline {

class Communicator;

// Seconds since some moment in the past; the same for all processes of a host.
double steady_seconds();

// What this rank adds to steady_seconds() to get rank 0's: estimated from the fastest of several round trips, as in
// Cristian's algorithm (1989); 0 where the difference is within that trip, as it is for ranks of one host. Collective.
double clock_offset(Communicator& world);

}  // namespace shardline
