#include "engine/run/cgroup_memory.h"

#include <cmath>

#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::cgroup_memory_test {
namespace {

struct Machine : TempFolder {
  CgroupMemory memory() const { return cgroup_memory(path()); }
};

}  // namespace

TEST_CASE("a machine without control groups has no limit") {
  const Machine machine;
  CHECK(std::isinf(machine.memory().limit));
  CHECK(std::isinf(machine.memory().available));
}

TEST_CASE("the limit is the lowest of a group and its ancestors, and file caches do not count as used") {
  const Machine machine;
  machine.write("proc/self/cgroup", "0::/job/step\n");
  machine.write("sys/fs/cgroup/job/step/memory.max", "max\n");
  machine.write("sys/fs/cgroup/job/memory.max", "1000\n");
  machine.write("sys/fs/cgroup/job/memory.current", "700\n");
  machine.write("sys/fs/cgroup/job/memory.stat", "anon 450\ninactive_file 250\n");
  CHECK(machine.memory().limit == 1000);
  CHECK(machine.memory().available == 550);
  machine.write("sys/fs/cgroup/job/step/memory.max", "600\n");
  machine.write("sys/fs/cgroup/job/step/memory.current", "500\n");
  CHECK(machine.memory().limit == 600);
  CHECK(machine.memory().available == 100);
}

TEST_CASE("a container sees its own group at the mount") {
  const Machine machine;
  machine.write("proc/self/cgroup", "0::/../../docker/4711\n");
  machine.write("sys/fs/cgroup/memory.max", "2000\n");
  machine.write("sys/fs/cgroup/memory.current", "2500\n");
  CHECK(machine.memory().limit == 2000);
  CHECK(machine.memory().available == 0);
}

TEST_CASE("version 1 has other files, and a number for no limit") {
  const Machine machine;
  machine.write("proc/self/cgroup", "5:cpu,cpuacct:/\n4:memory:/slurm/job_7\n0::/\n");
  machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  machine.write("sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes", "3000\n");
  machine.write("sys/fs/cgroup/memory/slurm/job_7/memory.usage_in_bytes", "1000\n");
  machine.write("sys/fs/cgroup/memory/slurm/job_7/memory.stat", "inactive_file 1\ntotal_inactive_file 400\n");
  CHECK(machine.memory().limit == 3000);
  CHECK(machine.memory().available == 2400);
}

}  // namespace shardline::cgroup_memory_test
