// The hosts that a batch system has given to the job that this process belongs to.
#pragma once
#include <string>
#include <vector>

namespace shardline {

// Passes the launcher's hosts on to its ranks, whose hosts may not have the batch system's environment: names with
// commas between them.
inline constexpr const char* kHostsOfLauncher = "SHARDLINE_HOSTS";

// In the batch system's order, each host once; empty outside of an allocation. Knows Slurm, PBS, LSF and Grid Engine,
// as Open MPI does. Empty also in a rank that was started without the launcher: it may use only a part of the
// allocation. Throws ConfigError where the environment names hosts in a way that cannot be read.
std::vector<std::string> allocated_hosts();

// Slurm's short form: "n[08-10,12],gpu" -> n08, n09, n10, n12, gpu.
std::vector<std::string> expanded_host_list(const std::string& list);

}  // namespace shardline
