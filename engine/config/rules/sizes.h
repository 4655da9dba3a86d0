// The number of ranks, and how the samples of an optimizer step are divided among them.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/config/keys/options.h"
#include "partitioner/layout/layout.h"

namespace shardline {

// Whether the config's cluster is this machine.
bool plans_for_this_machine(const Config& config);

// The hosts in mpi_options, or else those of the batch system's allocation; empty: this host alone.
std::vector<std::string> hosts_of(const Config& config);
// The number of these hosts, at least one.
int available_hosts(const Config& config);
// Whether the ranks are spread over all of these hosts. If P x T alone determines the number of ranks, they are on one
// host.
bool uses_all_hosts(const Config& config);
// The number of hosts that have ranks.
int used_hosts(const Config& config);

// The ranks on each host if `world_size` ranks use all hosts. Throws ConfigError if it is not a multiple of the hosts.
int ranks_per_host(const Config& config, int world_size);

// used_hosts x processes_per_host if that is set, else P x T.
int configured_world_size(const Config& config);

// A layout's degrees and batch sizes; engine/plan/resolve.h adds the other fields. Throws a ConfigError that lists
// every violated rule, with the nearest values that satisfy it.
Layout resolve_sizes(const Config& config, int world_size);

// Called for each violation with the key ("smp_options.microbatches"), the rule, and what to change.
using Complaint = std::function<void(const std::string& key, const std::string& rule, const std::string& advice)>;

// The same, but passes violations to `complain`; the result is valid only if there were none.
Layout check_sizes(const Config& config, int world_size, const Complaint& complain);

}  // namespace shardline
