#include "engine/run/ranks.h"

#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdlib>
#include <exception>
#include <mutex>

#include "core/comm/local_communicator.h"
#include "core/comm/mpi_communicator.h"
#include "core/comm/nccl/nccl_communicator.h"
#include "core/comm/threads_communicator.h"
#include "core/comm/timeouts.h"
#include "core/device/accelerator.h"
#include "core/error.h"
#include "core/memory/caching_allocator.h"
#include "engine/config/rules/allocation.h"
#include "engine/config/rules/findings.h"
#include "engine/config/rules/precision_rules.h"
#include "engine/config/rules/shell_words.h"
#include "engine/config/rules/sizes.h"
#include "engine/run/local_cluster.h"
#include "tensor_parallel/products/products.h"

namespace shardline {
namespace {

// The number of threads that the user set for OpenMP; 0: not set. A list is for nested regions, the outermost first.
int threads_of_environment() {
  const char* text = std::getenv("OMP_NUM_THREADS");
  return text ? std::max(0, std::atoi(text)) : 0;
}

void use_threads(const Config& config, int local_size) {
  int threads = config.runtime.threads_per_rank;
  if (threads == 0) threads = threads_of_environment();
  at::set_num_threads(threads > 0 ? threads : std::max(1, usable_cores() / local_size));
}

// Tasks of a Slurm step that do not find each other would each be a run of their own, in the same output_dir. Slurm's
// number of tasks matters only if MPI sees a single process.
void check_tasks(int mpi_size) {
  const char* text = std::getenv("SLURM_STEP_NUM_TASKS");
  const int tasks = text ? std::atoi(text) : 1;
  if (mpi_size > 1 || tasks <= 1) return;
  throw ConfigError(cat("Slurm started ", tasks,
                        " tasks, but MPI connects none of them (its world size is 1); start them "
                        "with `srun --mpi=pmix -n ",
                        tasks,
                        " shardline ...`, or run shardline once, without srun: it "
                        "starts the ranks itself"));
}

// NCCL needs a device of its own for every rank; ranks that share one communicate over MPI. own_devices: whether every
// rank has its own GPU.
bool uses_nccl(const Config& config, bool own_devices, int local_size, int world_size) {
  const auto demand = [&](const char* key, CommunicatorChoice choice, const char* instead) {
    if (choice == CommunicatorChoice::nccl && !own_devices)
      throw ConfigError(
          cat(key, ": \"nccl\" needs ",
              has_nccl() ? cat("a GPU for every rank; this host has ", gpu_count(), " for ", local_size, " ranks")
                         : "a build with CUDA and NCCL, and this one has neither",
              "; use \"", instead, '"'));
    return choice == CommunicatorChoice::nccl;
  };
  const bool asked = demand("/runtime/communicator", config.runtime.communicator, "mpi");
  const bool asked_for_replicas = demand("/smp_options/ddp_dist_backend", config.smp.ddp_dist_backend, "auto");
  return asked || asked_for_replicas ||
         (config.runtime.communicator == CommunicatorChoice::automatic && own_devices && world_size > 1);
}

// Sets up what all ranks of a process share.
void set_up_process(const Config& config) {
  prepare_for_pipelines(config);
  set_timeouts(timeouts_with(std::chrono::seconds(config.training.ddp_timeout)));
  set_gpu_products(uses_tf32(config));
}

// Prepares the context's device, which is this thread's current one.
void set_up_device(const Config& config, RankContext& context) {
  // This process may have run before, with a larger batch.
  trim_memory();
  if (is_accelerator(context.device)) release_device_memory();
  if (!is_accelerator(context.device)) set_memory_cap(config.runtime.memory_cap);
  const bool own_devices = has_nccl() && each_has_its_own(device_names(*context.world, context.device));
  if (uses_nccl(config, own_devices, context.local_size, context.world->size()))
    context.device_world = make_nccl_world(context.world, context.device.index());
}

// mpirun takes the hosts of its options or of a scheduler's allocation.
bool may_run_elsewhere(const Config& config) {
  return !hosts_of(config).empty() || !config.mpi.custom_mpi_options.empty();
}

}  // namespace

CommunicatorChoice resolved_communicator(const Config& config) {
  const CommunicatorChoice asked = config.runtime.communicator;
  if (asked == CommunicatorChoice::nccl) return CommunicatorChoice::mpi;  // starts the ranks and carries host values
  if (asked != CommunicatorChoice::automatic) return asked;
  const bool one_process = configured_world_size(config) == 1 && !mpi_is_launched();
  return one_process ? CommunicatorChoice::local : CommunicatorChoice::mpi;
}

void check_host(const Config& config) {
  const bool processes = resolved_communicator(config) == CommunicatorChoice::mpi;
  // Started ranks have compared their devices (run_on_ranks); each may see only its own GPU.
  if (processes && (mpi_is_launched() || may_run_elsewhere(config))) return;
  if (processes) require_mpi();
  prepare_for_pipelines(config);  // choose_device starts CUDA, and ranks may be threads of this process
  const at::Device device = choose_device(config, 0);
  const int ranks = configured_world_size(config);
  const bool own_devices = has_nccl() && is_accelerator(device) && ranks <= gpu_count();
  Findings findings;
  findings.check([&] { check_device(config, device); });
  findings.check([&] { uses_nccl(config, own_devices, ranks, ranks); });
  findings.throw_all();
}

HostChoices choices_here(const Config& config) {
  const int ranks = configured_world_size(config) / used_hosts(config), gpus = gpu_count();
  const std::string wanted = word_of(config.runtime.device);
  const bool threads = config.runtime.communicator == CommunicatorChoice::threads;
  HostChoices choices;
  for (int rank = 0; rank < ranks; ++rank) {
    const at::Device device = choose_device(config, rank);
    std::string why = cat("runtime.device is \"", wanted, '"');
    if (is_accelerator(device) && threads)
      why += ", and ranks that are threads share the first GPU";
    else if (is_accelerator(device))
      why += gpus == 1 ? ", and the host has one GPU"
                       : cat(", and the ranks of the host take its ", gpus, " GPUs in turn");
    else if (config.runtime.device != DeviceChoice::cpu)
      why += ", and " + no_gpu_reason().substr(0, no_gpu_reason().find(';'));
    choices.ranks.push_back({rank, device, why});
  }
  const CommunicatorChoice asked = config.runtime.communicator, values = resolved_communicator(config);
  choices.values = word_of(values);
  choices.values_why = asked == values                       ? cat("runtime.communicator is \"", choices.values, '"')
                       : values == CommunicatorChoice::local ? "one rank, which is this process"
                                                             : "ranks are processes, which mpirun starts";
  const bool on_gpus = is_accelerator(choices.ranks.front().device), own = on_gpus && !threads && ranks <= gpus;
  const bool nccl = own && has_nccl() && configured_world_size(config) > 1 &&
                    (asked == CommunicatorChoice::automatic || asked == CommunicatorChoice::nccl ||
                     config.smp.ddp_dist_backend == CommunicatorChoice::nccl);
  choices.tensors = nccl ? "nccl" : choices.values;
  choices.tensors_why = nccl          ? "every rank has a GPU of its own"
                        : !on_gpus    ? "the ranks compute on CPUs"
                        : !own        ? cat(ranks, " ranks share ", threads || gpus == 1 ? "1 GPU" : cat(gpus, " GPUs"),
                                            ", but NCCL needs one GPU per rank")
                        : !has_nccl() ? "this build has no NCCL"
                        : asked != CommunicatorChoice::automatic
                            ? cat("runtime.communicator is \"", word_of(asked), '"')
                            : "one rank";
  return choices;
}

bool is_started_rank(const Config& config) {
  return mpi_is_launched() && resolved_communicator(config) == CommunicatorChoice::mpi;
}

void check_world(const Config& config, const Communicator& world) {
  const int wanted = configured_world_size(config), per_host = config.mpi.processes_per_host;
  if (world.size() == wanted) return;
  const auto started =
      cat("the config asks for ", wanted, " ranks (",
          per_host == 0 ? "pipeline x tensor degree on one host"
                        : cat("hosts x mpi_options.processes_per_host = ", used_hosts(config), " x ", per_host),
          "), but mpirun or srun started ", world.size(), "; start ", wanted, ", or set ");
  throw ConfigError(started + (per_host == 0 ? "mpi_options.processes_per_host for more replicas"
                                             : "mpi_options.hosts and processes_per_host to match"));
}

bool needs_mpirun(const Config& config) {
  const bool is_alone = config.runtime.communicator == CommunicatorChoice::threads ||
                        config.runtime.communicator == CommunicatorChoice::local;
  if (is_alone || mpi_is_launched()) return false;
  check_tasks(1);
  return resolved_communicator(config) == CommunicatorChoice::mpi;
}

std::vector<std::string> mpirun_command(const Config& config, const std::string& program,
                                        const std::vector<std::string>& arguments) {
  const int world = configured_world_size(config);
  std::vector<std::string> command = {"mpirun", "-np", std::to_string(world), "--bind-to", "none", "--oversubscribe"};
  const auto hosts = hosts_of(config);
  const auto joined = [&](int count, const std::string& after) {
    std::string list;
    for (int i = 0; i < count; ++i) list += cat(i > 0 ? "," : "", hosts[i], after);
    return list;
  };
  // mpirun itself knows the host of an allocation with one host.
  if (hosts.size() > 1 || !config.mpi.hosts.empty())
    command.insert(command.end(), {"--host", joined(used_hosts(config), cat(":", world / used_hosts(config)))});
  if (config.mpi.hosts.empty() && hosts.size() > 1)
    command.insert(command.end(), {"-x", cat(kHostsOfLauncher, "=", joined(hosts.size(), ""))});
  if (hosts.size() > 1 && std::getenv(kTimeoutVariable)) command.insert(command.end(), {"-x", kTimeoutVariable});
  for (const auto& word : shell_words(config.mpi.custom_mpi_options)) command.push_back(word);
  command.push_back(program);
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

RankContext join_ranks(const Config& config, const void* mpi_comm) {
  if (config.runtime.communicator == CommunicatorChoice::threads)
    throw ConfigError(
        "/runtime/communicator: \"threads\" runs the ranks as threads of one process, but this program is one "
        "rank; use \"auto\" and start the ranks with mpirun");
  set_up_process(config);
  RankContext context;
  if (mpi_comm || mpi_is_launched()) {
    MpiWorld mpi = make_mpi_world(mpi_comm);
    context.world = mpi.comm;
    context.local_rank = mpi.local_rank;
    context.local_size = mpi.local_size;
    context.host_of = std::move(mpi.host_of);
  } else {
    if (const int ranks = configured_world_size(config); ranks > 1)
      throw ConfigError(cat("the config asks for ", ranks,
                            " ranks, but this program is one process; start it with "
                            "`mpirun -np ",
                            ranks, "`, or pass a communicator of that many ranks"));
    set_current_rank(0);
    context.world = make_local_world();
  }
  context.device_world = context.world;
  use_threads(config, context.local_size);
  context.device = choose_device(config, context.local_rank);
  check_device(config, context.device);
  check_device_memory(context.device);
  if (is_accelerator(context.device)) c10::impl::VirtualGuardImpl(context.device.type()).setDevice(context.device);
  set_up_device(config, context);
  return context;
}

void run_on_ranks(const Config& config, std::ostream& out, const Console& console,
                  const std::function<void(RankContext&)>& command) {
  set_up_process(config);
  const CommunicatorChoice kind = resolved_communicator(config);
  std::mutex mutex;
  std::exception_ptr stopped;  // guarded by `mutex` while ranks are threads
  const auto run = [&](CommunicatorPtr world, int local_rank, int local_size, std::vector<int> host_of = {}) {
    RankContext context{.world = world,
                        .device_world = world,
                        .local_rank = local_rank,
                        .local_size = local_size,
                        .host_of = std::move(host_of)};
    context.device = choose_device(config, local_rank);
    check_device(config, context.device);
    check_device_memory(context.device);
    // From here on, this is the thread's current device, on which tensors, streams and NCCL's communicators are
    // created.
    const c10::DeviceGuard on_device(context.device);
    c10::OptionalStreamGuard on_own_stream;  // set if ranks share the device
    if (is_accelerator(context.device) && kind == CommunicatorChoice::threads)
      on_own_stream.reset_stream(
          c10::impl::VirtualGuardImpl(context.device.type()).getStreamFromGlobalPool(context.device));
    set_up_device(config, context);
    context.out = context.first() ? &out : nullptr;
    context.console = console;
    if (config.training.disable_tqdm.value_or(false)) context.console.terminal = false;
    try {
      command(context);
    } catch (const StoppedAfterSaving&) {  // all ranks have agreed on it: they leave as if they were done
      const std::lock_guard lock(mutex);
      stopped = std::current_exception();
    }
  };
  if (kind == CommunicatorChoice::threads) {
    const int ranks = configured_world_size(config);
    run_ranks(ranks, [&](CommunicatorPtr world) { run(world, world->rank(), ranks); });
  } else if (kind == CommunicatorChoice::local) {
    if (configured_world_size(config) != 1)
      throw ConfigError(cat("runtime.communicator \"local\" means one rank, but the config asks for ",
                            configured_world_size(config), "; use \"mpi\" or \"threads\""));
    set_current_rank(0);
    use_threads(config, 1);
    run(make_local_world(), 0, 1);
  } else {
    const MpiWorld mpi = make_mpi_world();
    use_threads(config, mpi.local_size);
    try {
      check_tasks(mpi.comm->size());
      run(mpi.comm, mpi.local_rank, mpi.local_size, mpi.host_of);
    } catch (const std::exception& error) {
      mpi.comm->abort(error.what());
      throw;
    }
  }
  if (stopped) std::rethrow_exception(stopped);
}

}  // namespace shardline
