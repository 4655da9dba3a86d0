#include "engine/plan/machines.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "engine/config/rules/allocation.h"
#include "tests/engine/config/environment.h"
#include "tests/engine/config/training_config.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::machines_test {
namespace {

using Catch::Matchers::Contains;

// Two nodes of eight GPUs.
std::string cluster_in(const TempFolder& folder) {
  std::ifstream published(std::string(SHARDLINE_SOURCE_DIR) + "/configs/clusters/p4d.24xlarge.json");
  auto file = nlohmann::json::parse(published);
  file["nodes"] = 2;
  return folder.write("cluster.json", file.dump());
}

TEST_CASE("a cluster has the nodes of an allocation and the devices that a host's ranks use") {
  const EnvironmentVariable launcher(kHostsOfLauncher, nullptr);
  const TempFolder folder;
  Config config = config_with(nlohmann::json::object());
  config.cluster = cluster_in(folder);
  const auto nodes_and_devices = [&] {
    const Cluster cluster = planning_cluster(config, 1);
    return std::pair(cluster.nodes, cluster.devices_per_node);
  };
  config.smp.pipeline_parallel_degree = 16;
  {
    const EnvironmentVariable slurm("SLURM_JOB_NODELIST", nullptr);
    CHECK(nodes_and_devices() == std::pair(2, 8));
    config.mpi.processes_per_host = 4;
    CHECK(nodes_and_devices() == std::pair(2, 4));
  }
  const EnvironmentVariable slurm("SLURM_JOB_NODELIST", "n[1-3]");
  CHECK(nodes_and_devices() == std::pair(3, 4));
  config.mpi.hosts = {"a"};
  CHECK(nodes_and_devices() == std::pair(1, 4));
  config.mpi.hosts = {};
  config.mpi.processes_per_host = 64;  // ranks that share devices
  CHECK(nodes_and_devices() == std::pair(3, 8));
  // P x T ranks, which would all be on one host here: the plan is for other machines.
  config.mpi.processes_per_host = 0;
  CHECK(nodes_and_devices() == std::pair(2, 8));
  config.smp.pipeline_parallel_degree = kAuto;
  CHECK(nodes_and_devices() == std::pair(3, 8));
}

TEST_CASE("products in TF32 are planned at half the rate of bf16") {
  const TempFolder folder;
  Config config = config_with(nlohmann::json::object());
  config.cluster = cluster_in(folder);
  config.runtime.device = DeviceChoice::automatic;
  CHECK(planning_cluster(config, 8).peak(Precision::fp32) == 19.5e12);
  config.training.tf32 = true;
  CHECK(planning_cluster(config, 8).peak(Precision::fp32) == 156e12);
}

TEST_CASE("a profile of this machine is refused for the machines of a cluster file") {
  const TempFolder folder;
  Config config = config_with(nlohmann::json::object());
  config.cluster = cluster_in(folder);
  config.profile = "profile.json";
  CHECK_THROWS_WITH(planning_cluster(config, 1), Contains("/profile: ") && Contains("/cluster names"));
}

}  // namespace
}  // namespace shardline::machines_test
