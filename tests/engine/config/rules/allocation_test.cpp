#include "engine/config/rules/allocation.h"

#include "core/error.h"
#include "engine/config/rules/sizes.h"
#include "tests/engine/config/environment.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::allocation_test {

using Catch::Matchers::Contains;
using Hosts = std::vector<std::string>;

namespace {

// Hides any allocation in which the tests run.
struct Outside {
  EnvironmentVariable launcher{kHostsOfLauncher, nullptr}, slurm{"SLURM_JOB_NODELIST", nullptr},
      pbs{"PBS_NODEFILE", nullptr}, lsf{"LSB_DJOB_HOSTFILE", nullptr}, grid_engine{"PE_HOSTFILE", nullptr},
      size{"OMPI_COMM_WORLD_SIZE", nullptr}, rank{"PMIX_RANK", nullptr}, old_rank{"PMI_RANK", nullptr};
};

}  // namespace

TEST_CASE("Slurm's lists of hosts are expanded", "[allocation]") {
  CHECK(expanded_host_list("n1") == Hosts{"n1"});
  CHECK(expanded_host_list("b,a,b") == Hosts{"b", "a"});
  CHECK(expanded_host_list("n[08-10,12],gpu-7") == Hosts{"n08", "n09", "n10", "n12", "gpu-7"});
  CHECK(expanded_host_list("r[1-2]n[3,5].x") == Hosts{"r1n3.x", "r1n5.x", "r2n3.x", "r2n5.x"});
  CHECK(expanded_host_list("n[98-101]") == Hosts{"n98", "n99", "n100", "n101"});
  for (const char* wrong : {"", "a,,b", "n[1-3", "n1]", "n]1[", "n[]", "n[a]", "n[3-1]", "n[-1]", "n[1-]", "n[1,]",
                            "n[0-99999999]", "n[0-99999][0-99999]", "n[1[2]]"}) {
    INFO(wrong);
    CHECK_THROWS_WITH(expanded_host_list(wrong), Contains("mpi_options.hosts"));
  }
}

TEST_CASE("Hosts of an allocation come from the batch system", "[allocation]") {
  const Outside outside;
  const TempFolder folder;
  CHECK(allocated_hosts().empty());
  for (const char* variable : {"PBS_NODEFILE", "LSB_DJOB_HOSTFILE", "PE_HOSTFILE"}) {
    const auto file = folder.write("hosts", "n2 4 all.q UNDEFINED\n\nn2\nn1 4\n");
    const EnvironmentVariable names_file(variable, file.c_str());
    CHECK(allocated_hosts() == Hosts{"n2", "n1"});
    const EnvironmentVariable missing(variable, "/no/such/file");
    CHECK_THROWS_WITH(allocated_hosts(), Contains(variable) && Contains("/no/such/file"));
  }
  const EnvironmentVariable slurm("SLURM_JOB_NODELIST", "n[1-2]");
  CHECK(allocated_hosts() == Hosts{"n1", "n2"});
  const EnvironmentVariable launcher(kHostsOfLauncher, "a,b,c");  // what the ranks receive
  CHECK(allocated_hosts() == Hosts{"a", "b", "c"});
}

TEST_CASE("A rank started by srun has the hosts of its step, and one started by mpirun has no hosts", "[allocation]") {
  const Outside outside;
  const EnvironmentVariable slurm("SLURM_JOB_NODELIST", "n[1-4]"), step("SLURM_STEP_NODELIST", "n[2-3]");
  CHECK(allocated_hosts() == Hosts{"n1", "n2", "n3", "n4"});
  const EnvironmentVariable rank("PMIX_RANK", "0");
  CHECK(allocated_hosts() == Hosts{"n2", "n3"});
  const EnvironmentVariable size("OMPI_COMM_WORLD_SIZE", "2");  // mpirun starts its daemons in a step of Slurm
  CHECK(allocated_hosts().empty());
}

TEST_CASE("Ranks are on all hosts of an allocation unless the config names hosts", "[allocation]") {
  const Outside outside;
  Config config;
  config.mpi.processes_per_host = 4;
  CHECK(hosts_of(config).empty());
  CHECK(configured_world_size(config) == 4);

  const EnvironmentVariable slurm("SLURM_JOB_NODELIST", "n[1-3]");
  CHECK(hosts_of(config) == Hosts{"n1", "n2", "n3"});
  CHECK(configured_world_size(config) == 12);
  config.mpi.hosts = {"n2"};
  CHECK(hosts_of(config) == Hosts{"n2"});
  CHECK(configured_world_size(config) == 4);

  // P x T ranks on one host, and ranks that are one process, need no other host.
  config.mpi.hosts = {};
  config.mpi.processes_per_host = 0;
  config.smp.pipeline_parallel_degree = 2;
  CHECK(configured_world_size(config) == 2);
  config.mpi.processes_per_host = 4;
  for (const auto communicator : {CommunicatorChoice::threads, CommunicatorChoice::local}) {
    config.runtime.communicator = communicator;
    CHECK(configured_world_size(config) == 4);
  }
  config.runtime.communicator = CommunicatorChoice::automatic;
  config.mpi.enabled = false;
  CHECK(configured_world_size(config) == 4);
}

}  // namespace shardline::allocation_test
