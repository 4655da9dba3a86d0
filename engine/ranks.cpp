#include "engine/ranks.h"

#include <ATen/Parallel.h>

#include <cstdlib>
#include <sstream>
#include <thread>

#include "core/error.h"
#include "core/local_communicator.h"
#include "core/mpi_communicator.h"
#include "core/threads_communicator.h"
#include "engine/config/sizes.h"

namespace shardline {
namespace {

void use_threads(const Config& config, int local_size) {
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  at::set_num_threads(config.runtime.threads_per_rank > 0 ? config.runtime.threads_per_rank
                                                          : std::max(1, cores / local_size));
}

void check_world(const Config& config, int started) {
  const int wanted = configured_world_size(config);
  if (config.mpi.processes_per_host == 0 && started != wanted)
    throw ConfigError(cat("the config asks for ", wanted, " ranks (pipeline x tensor degree on one host), but mpirun started ",
                          started, "; start it with -np ", wanted,
                          ", or set mpi_options.processes_per_host for more replicas"));
}

}  // namespace

std::string resolved_communicator(const Config& config) {
  if (config.runtime.communicator != "auto") return config.runtime.communicator;
  return configured_world_size(config) == 1 && !mpi_is_launched() ? "local" : "mpi";
}

bool needs_mpirun(const Config& config) { return resolved_communicator(config) == "mpi" && !mpi_is_launched(); }

std::vector<std::string> mpirun_command(const Config& config, const std::string& program,
                                        const std::vector<std::string>& arguments) {
  const int world = configured_world_size(config);
  std::vector<std::string> command = {"mpirun", "--quiet", "-np", std::to_string(world), "--bind-to", "none", "--oversubscribe"};
  if (!config.mpi.hosts.empty()) {
    std::string hosts;
    for (const auto& host : config.mpi.hosts)
      hosts += cat(hosts.empty() ? "" : ",", host, ":", world / static_cast<int>(config.mpi.hosts.size()));
    command.insert(command.end(), {"--host", hosts});
  }
  std::istringstream custom(config.mpi.custom_mpi_options);
  for (std::string word; custom >> word;) command.push_back(word);
  command.push_back(program);
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

void run_on_ranks(const Config& config, std::ostream& out, const Console& console,
                  const std::function<void(RankContext&)>& command) {
  const std::string kind = resolved_communicator(config);
  const auto run = [&](CommunicatorPtr world, int local_rank, int local_size) {
    RankContext context{.world = world, .local_rank = local_rank, .local_size = local_size};
    context.out = context.first() ? &out : nullptr;
    context.console = console;
    command(context);
  };
  if (kind == "threads") {
    const int ranks = configured_world_size(config);
    run_ranks(ranks, [&](CommunicatorPtr world) { run(world, world->rank(), ranks); });
  } else if (kind == "local") {
    if (configured_world_size(config) != 1)
      throw ConfigError(cat("runtime.communicator \"local\" is one rank, but the config asks for ",
                            configured_world_size(config), "; use \"mpi\" or \"threads\""));
    set_current_rank(0);
    use_threads(config, 1);
    run(make_local_world(), 0, 1);
  } else {
    const MpiWorld mpi = make_mpi_world();
    use_threads(config, mpi.local_size);
    try {
      check_world(config, mpi.comm->size());
      run(mpi.comm, mpi.local_rank, mpi.local_size);
    } catch (const std::exception& error) {
      mpi.comm->abort(error.what());
      throw;
    }
  }
}

}  // namespace shardline
