// The hosts that a batch system has given to the job that this process belongs to.
#pragma once
#include <string>
#include <vector>

namespace shardline {

// Passes the launcher's hosts on to its ranks, which may lack the batch system's environment on their hosts: names
// separated by commas.
inline constexpr const char* kHostsOfLauncher = "SHARDLINE_HOSTS";

// The hosts in the batch system's order, each once; empty outside of an allocation. Reads the variables of Slurm, PBS,
// LSF and Grid Engine, as Open MPI does. In a rank that srun started, returns the hosts of its step. Empty in a rank
// that mpirun started without the launcher, because such a job may use only a part of the allocation. Throws
// ConfigError if the environment's list of hosts cannot be read.
std::vector<std::string> allocated_hosts();

// Expands Slurm's short form: "n[08-10,12],gpu" -> n08, n09, n10, n12, gpu.
std::vector<std::string> expanded_host_list(const std::string& list);

}  // namespace shardline
