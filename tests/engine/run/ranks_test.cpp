#include "engine/run/ranks.h"

#include "core/comm/nccl/nccl_api.h"
#include "core/comm/timeouts.h"
#include "core/error.h"
#include "engine/config/config.h"
#include "tests/engine/config/environment.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::ranks_test {

namespace {

std::string command_on(std::vector<std::string> hosts) {
  Config config;
  config.mpi.hosts = std::move(hosts);
  config.mpi.processes_per_host = 2;
  std::string text;
  for (const auto& word : mpirun_command(config, "program", {"train"})) text += word + ' ';
  return text;
}

}  // namespace

TEST_CASE("ranks on other hosts get the time limit set in the environment") {
  const std::string limit = std::string("-x ") + kTimeoutVariable + ' ';
  {
    const EnvironmentVariable none(kTimeoutVariable, nullptr);
    CHECK_THAT(command_on({"a", "b"}), !Catch::Contains(limit));
  }
  const EnvironmentVariable given(kTimeoutVariable, "7200");
  CHECK_THAT(command_on({"a", "b"}), Catch::Contains("--host a:2,b:2 " + limit + "program train"));
  CHECK_THAT(command_on({"a"}), !Catch::Contains(limit));  // a process of this host inherits it
}

TEST_CASE("everything that this host lacks is reported together") {
  if (has_nccl()) return;  // a GPU may be there
  Config config;
  config.training.tf32 = true;
  config.runtime.device = DeviceChoice::cpu;
  config.runtime.communicator = CommunicatorChoice::threads;
  config.smp.ddp_dist_backend = CommunicatorChoice::nccl;
  const std::string missing = message_of<ConfigError>([&] { check_host(config); });
  CHECK_THAT(missing,
             Catch::Contains("/training/tf32: needs a GPU") &&
                 Catch::Contains("\n/smp_options/ddp_dist_backend: \"nccl\" needs a build with CUDA and NCCL"));
}

}  // namespace shardline::ranks_test
