// All-gathers in two steps, for groups with ranks on several hosts: first the ranks with the same position on their
// hosts exchange their parts, then the ranks of each host gather what they have. Each part thus crosses to a host only
// once, not once for each rank there (MiCS: Zhang et al. 2022, arXiv 2205.00119). Nothing is summed, so the result
// equals that of one all-gather, bit for bit.
#pragma once
#include <optional>
#include <vector>

#include "core/comm/communicator.h"

namespace shardline {

// How the ranks of a group are placed on hosts, in rank order: each host has the same number of ranks, either
// consecutively (A A B B) or alternating (A B A B).
struct HostGrid {
  int hosts = 1, per_host = 1;
  bool in_turns = false;

  bool needs_two_steps() const { return hosts > 1 && per_host > 1; }
  int rank(int host, int place) const { return in_turns ? place * hosts + host : host * per_host + place; }
  int host(int rank) const { return in_turns ? rank % hosts : rank / per_host; }
  int place(int rank) const { return in_turns ? rank / hosts : rank % per_host; }
  bool operator==(const HostGrid&) const = default;
};

// host_of: for each rank, a number that identifies its host; not empty. Returns nothing if the ranks are placed in any
// other way.
std::optional<HostGrid> host_grid(const std::vector<int>& host_of);

// Returns `group` with two-step all-gathers of CPU tensors, or `group` itself if its ranks do not form such a grid.
// Everything else, including device tensors (NCCL knows the hosts and chooses the algorithm), works as in `group`.
// Collective over the group. host: a number that identifies this rank's host.
//
// A second step begins when the first has finished, even if no rank is waiting. The second steps of several all-gathers
// begin in the order in which the all-gathers were started. A thread checks for this every 50 us while a first step is
// in progress. Each step has its own record in the flight ring and its own limit.
CommunicatorPtr with_hierarchical_gather(const CommunicatorPtr& group, int host);

}  // namespace shardline
