// The memory limits that containers, Slurm and systemd set: those of the control groups of this process (version 1 and
// 2; see Linux's Documentation/admin-guide/cgroup-v2.rst).
#pragma once
#include <filesystem>
#include <limits>

namespace shardline {

struct CgroupMemory {
  double limit = std::numeric_limits<double>::infinity();  // bytes: the lowest one of the group and its ancestors
  // Bytes that can be allocated before one of these limits is reached, if file caches are dropped.
  double available = std::numeric_limits<double>::infinity();
};

// Returns no limits if there are no control groups, or if they cannot be read. root: replaces "/" in tests.
CgroupMemory cgroup_memory(const std::filesystem::path& root = "/");

}  // namespace shardline
