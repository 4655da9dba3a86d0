// How many samples go where in one optimizer step: the only place that does this arithmetic.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/config/keys/options.h"
#include "partitioner/layout/layout.h"

namespace shardline {

// The hosts that mpi_options names, else those of the batch system's allocation; empty: this host alone.
std::vector<std::string> hosts_of(const Config& config);
// How many that is: at least one.
int available_hosts(const Config& config);
// How many the ranks are on: one where only P x T says how many ranks there are.
int used_hosts(const Config& config);

// Of so many ranks on all of them. Throws ConfigError where they are not a multiple of the hosts.
int ranks_per_host(const Config& config, int world_size);

// used_hosts x processes_per_host; else P x T.
int configured_world_size(const Config& config);

// A layout's degrees and batch sizes; the rest as the config says is added by engine/plan/resolve.h. Throws ConfigError
// naming all rules that do not hold, with the neighbours that do.
Layout resolve_sizes(const Config& config, int world_size);

// Called for a violated rule: the key ("smp_options.microbatches"), the rule, what to change.
using Complaint = std::function<void(const std::string& key, const std::string& rule, const std::string& advice)>;

// resolve_sizes for callers who collect complaints; the result means something only when there were none.
Layout check_sizes(const Config& config, int world_size, const Complaint& complain);

}  // namespace shardline
