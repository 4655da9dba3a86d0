#include "engine/run/ranks.h"

#include "core/comm/timeouts.h"
#include "engine/config/config.h"
#include "tests/engine/config/environment.h"

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

TEST_CASE("ranks on other hosts get the time limit of the environment") {
  const std::string limit = std::string("-x ") + kTimeoutVariable + ' ';
  {
    const EnvironmentVariable none(kTimeoutVariable, nullptr);
    CHECK_THAT(command_on({"a", "b"}), !Catch::Contains(limit));
  }
  const EnvironmentVariable given(kTimeoutVariable, "7200");
  CHECK_THAT(command_on({"a", "b"}), Catch::Contains("--host a:2,b:2 " + limit + "program train"));
  CHECK_THAT(command_on({"a"}), !Catch::Contains(limit));  // a process of this host inherits it
}

}  // namespace shardline::ranks_test
