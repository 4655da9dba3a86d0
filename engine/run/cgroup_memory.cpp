#include "engine/run/cgroup_memory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>

namespace shardline {
namespace {

namespace fs = std::filesystem;

// The files of a version.
struct Version {
  const char *limit, *used, *dropped;  // dropped: the line in memory.stat of caches that can be dropped
};
constexpr Version kFirst = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
constexpr Version kSecond = {"memory.max", "memory.current", "inactive_file"};

std::optional<double> number_in(const fs::path& path) {
  std::ifstream file(path);
  double number = 0;
  return file >> number ? std::optional(number) : std::nullopt;  // "max" is not a number
}

double stat_in(const fs::path& path, const std::string& wanted) {
  std::ifstream file(path);
  std::string name;
  for (double value = 0; file >> name >> value;)
    if (name == wanted) return value;
  return 0;
}

// Applies the limits of a group and its ancestors. In a container, its own group is the mount, whatever its name is on
// the host; folders that do not exist have no limit.
void apply(CgroupMemory& memory, const fs::path& mount, const fs::path& group, const Version& version) {
  for (fs::path at = group.relative_path();; at = at.parent_path()) {
    const fs::path folder = mount / at;
    if (const auto limit = number_in(folder / version.limit)) {
      const double used = number_in(folder / version.used).value_or(0);
      const double dropped = stat_in(folder / "memory.stat", version.dropped);
      memory.limit = std::min(memory.limit, *limit);
      memory.available = std::min(memory.available, std::max(0.0, *limit - std::max(0.0, used - dropped)));
    }
    if (at.empty()) return;
  }
}

}  // namespace

CgroupMemory cgroup_memory(const fs::path& root) {
  CgroupMemory memory;
  const fs::path mounts = root / "sys/fs/cgroup";
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "4:cpu,memory:/user" or "0::/user"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    if (controllers.find(",memory,") != std::string::npos) apply(memory, mounts / "memory", group, kFirst);
    if (controllers != ",,") continue;
    for (const char* mount : {"", "unified"}) apply(memory, mounts / mount, group, kSecond);
  }
  return memory;
}

}  // namespace shardline
