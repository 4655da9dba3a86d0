// The ranks of this run: this process alone, its threads, or processes that mpirun has started.
#pragma once
#include <c10/core/Device.h>

#include <functional>
#include <iosfwd>
#include <string>

#include "core/comm/communicator.h"
#include "engine/config/keys/options.h"
#include "engine/observe/progress.h"
#include "engine/run/rank_devices.h"

namespace shardline {

// What a rank needs to run a command.
struct RankContext {
  CommunicatorPtr world;               // carries host values
  CommunicatorPtr device_world;        // carries tensors of `device`; may be `world`
  int local_rank = 0, local_size = 1;  // on this host
  std::vector<int> host_of;            // by rank of the world: the first rank on its host; empty: all on one
  at::Device device = at::kCPU;
  std::ostream* out = nullptr;  // rank 0's output for the user; null on the others
  Console console;

  bool first() const { return world->rank() == 0; }
  bool uses_nccl() const { return device_world != world; }
};

// The communicator that carries host values: the config's choice; mpi for `nccl`, and for `auto` local if the run is a
// single process that mpirun did not start, else mpi.
CommunicatorChoice resolved_communicator(const Config& config);

// Throws ConfigError if this host cannot run the ranks of the config that belong here: it has no GPU, or the build has
// no MPI or NCCL. Ranks that mpirun may start on other hosts are checked where they start.
void check_host(const Config& config);

// Where ranks of the config would compute on this host and how they would communicate, and why, as text for users.
struct HostChoices {
  struct Rank {
    int local_rank = 0;
    at::Device device = at::kCPU;
    std::string why;
  };
  std::vector<Rank> ranks;
  std::string values, values_why;    // the communicator of host values
  std::string tensors, tensors_why;  // carries the device's tensors
};
// Describes as many ranks as the config has on each host. Throws ConfigError if choose_device does.
HostChoices choices_here(const Config& config);

// Whether this process is a rank of the config that mpirun has started.
bool is_started_rank(const Config& config);
// Throws ConfigError if mpirun did not start as many ranks as the config asks for.
void check_world(const Config& config, const Communicator& world);

// Whether this process has to start mpirun first: the ranks are to be processes, and this process is not one of them.
// Throws ConfigError if it is one of several Slurm tasks that MPI does not connect.
bool needs_mpirun(const Config& config);
// The command that starts them: mpirun, its options, and `program` with `arguments`.
std::vector<std::string> mpirun_command(const Config& config, const std::string& program,
                                        const std::vector<std::string>& arguments);

// For a program that is a rank itself: the ranks are those of the MPI_Comm that `mpi_comm` points to; without one,
// those that mpirun started, or this process alone. The rank's device becomes the current one of this thread. Throws
// ConfigError for a config whose ranks are threads.
RankContext join_ranks(const Config& config, const void* mpi_comm);

// Runs `command` on every rank of this process: once, or once per thread. An exception of one rank ends all of them.
void run_on_ranks(const Config& config, std::ostream& out, const Console& console,
                  const std::function<void(RankContext&)>& command);

}  // namespace shardline
