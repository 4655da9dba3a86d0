#include "engine/config/rules/sizes.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "engine/config/rules/allocation.h"
#include "engine/config/rules/shell_words.h"

namespace shardline {
namespace {

// "8 or 12": the multiples of `unit` around n.
std::string multiples_around(std::int64_t n, std::int64_t unit) {
  const std::int64_t below = n / unit * unit;
  return below > 0 ? cat(below, " or ", below + unit) : cat(unit);
}

// "4 or 8": the divisors of n around `near`.
std::string divisors_around(std::int64_t n, std::int64_t near) {
  std::int64_t below = std::min(near, n);
  while (n % below != 0) --below;
  std::int64_t above = near + 1;
  while (above < n && n % above != 0) ++above;
  return above <= n && above != below ? cat(below, " or ", above) : cat(below);
}

// The samples that a replica processes for `per_device` samples: T times as many, unless they are prescaled.
std::int64_t scaled_by_tensor_parallelism(const Config& config, std::int64_t per_device) {
  return per_device * (config.smp.prescaled_batch ? 1 : config.smp.tensor_parallel_degree);
}

void check_ddp(const Config& config, int replicas, const Complaint& complain) {
  if (config.smp.ddp.value_or(true)) return;
  if (replicas > 1)
    complain("smp_options.ddp", cat("must be true with ", replicas, " replicas (D = world size / (P x T) > 1)"),
             "leave it out, or start P x T processes");
}

// A replica's batch and the number of accumulation steps, derived from the global batch.
struct ReplicaBatch {
  std::int64_t samples = 1;
  int accumulation_steps = 1;
};
ReplicaBatch split_global_batch(const Config& config, int replicas, const Complaint& complain) {
  const TrainingOptions& training = config.training;
  const std::int64_t global_batch = *training.global_batch_size;
  const int microbatches = config.smp.microbatches;
  const std::int64_t replica_batch = training.per_device_train_batch_size
                                         ? scaled_by_tensor_parallelism(config, *training.per_device_train_batch_size)
                                         : 0;
  const int accumulation = training.gradient_accumulation_steps.value_or(1);
  std::int64_t unit = replicas * (replica_batch ? replica_batch : microbatches);
  std::string factors = cat("D x ", replica_batch ? "the replica's batch" : "microbatches", " = ", replicas, " x ",
                            replica_batch ? replica_batch : microbatches);
  if (training.gradient_accumulation_steps) {
    unit *= accumulation;
    factors += cat(" x gradient_accumulation_steps ", accumulation);
  }
  if (global_batch % unit != 0) {
    complain("training.global_batch_size", cat("must be a multiple of ", factors, " = ", unit),
             "change it to " + multiples_around(global_batch, unit));
    return {};
  }
  if (!replica_batch) return {global_batch / replicas / accumulation, accumulation};
  const int steps = global_batch / replicas / replica_batch;
  if (training.gradient_accumulation_steps && accumulation != steps)
    complain("training.global_batch_size",
             cat("contradicts per_device_train_batch_size and gradient_accumulation_steps, which make ", unit),
             "leave one of the three out");
  return {replica_batch, steps};
}

// Whether a microbatch of this many samples may exist; otherwise complains about `key`.
bool check_tokens(const Config& config, std::int64_t samples, const char* key, const Complaint& complain) {
  const std::int64_t tokens = samples * config.data.sequence_length;
  if (tokens <= kMostTokensOfMicrobatch) return true;
  complain(key,
           cat("makes microbatches of ", samples, " samples x data.sequence_length ", config.data.sequence_length,
               " = ", tokens, " tokens, more than ", kMostTokensOfMicrobatch),
           "use more and smaller ones, or a smaller batch");
  return false;
}

// Whether custom_mpi_options name the hosts for mpirun. The check of that key reports options that cannot be read.
bool names_hosts(const MpiOptions& mpi) try {
  const auto words = shell_words(mpi.custom_mpi_options);
  return std::any_of(words.begin(), words.end(), [](const std::string& word) {
    const auto option = word.substr(0, word.find('='));
    return option == "-H" || option == "-host" || option == "--host" || option == "-hostfile" ||
           option == "--hostfile" || option == "-machinefile" || option == "--machinefile";
  });
} catch (const ConfigError&) {
  return false;
}

}  // namespace

bool plans_for_this_machine(const Config& config) {
  return config.cluster.empty() || config.cluster == "local";
}

std::vector<std::string> hosts_of(const Config& config) {
  const auto communicator = config.runtime.communicator;
  const bool one_process =
      !config.mpi.enabled || communicator == CommunicatorChoice::threads || communicator == CommunicatorChoice::local;
  const bool takes_allocation = config.mpi.hosts.empty() && !one_process && !names_hosts(config.mpi);
  return takes_allocation ? allocated_hosts() : config.mpi.hosts;
}

int available_hosts(const Config& config) {
  return std::max<int>(1, hosts_of(config).size());
}

bool uses_all_hosts(const Config& config) {
  return config.mpi.processes_per_host > 0 || config.smp.pipeline_parallel_degree == kAuto ||
         config.smp.tensor_parallel_degree == kAuto;
}

int used_hosts(const Config& config) {
  return uses_all_hosts(config) ? available_hosts(config) : 1;
}

int ranks_per_host(const Config& config, int world_size) {
  const int hosts = available_hosts(config);
  if (world_size % hosts != 0)
    throw ConfigError(cat("/mpi_options: ", world_size, " ranks are not a multiple of the ", hosts,
                          " hosts; set hosts and processes_per_host"));
  return world_size / hosts;
}

int configured_world_size(const Config& config) {
  if (config.mpi.processes_per_host == 0)
    return config.smp.pipeline_parallel_degree * config.smp.tensor_parallel_degree;
  return config.mpi.processes_per_host * used_hosts(config);
}

Layout check_sizes(const Config& config, int world_size, const Complaint& complain) {
  const int microbatches = config.smp.microbatches;
  Layout layout{.tensor = config.smp.tensor_parallel_degree, .pipeline = config.smp.pipeline_parallel_degree};
  layout.eval_batch = scaled_by_tensor_parallelism(config, config.training.per_device_eval_batch_size);
  const int model_ranks = layout.pipeline * layout.tensor;
  SL_ASSERT(model_ranks > 0 && microbatches > 0, "\"auto\" was not chosen");
  if (world_size % model_ranks != 0) {
    complain("smp_options.pipeline_parallel_degree",
             cat("the world size ", world_size, " must be a multiple of P x T = ", layout.pipeline, " x ",
                 layout.tensor, " = ", model_ranks),
             cat("start ", multiples_around(world_size, model_ranks), " processes, or change the degrees"));
    return layout;
  }
  layout.replicas = world_size / model_ranks;
  check_ddp(config, layout.replicas, complain);

  ReplicaBatch batch;
  if (config.training.global_batch_size) {
    batch = split_global_batch(config, layout.replicas, complain);
  } else {
    batch.accumulation_steps = layout.loader_batches = config.training.gradient_accumulation_steps.value_or(1);
    batch.samples = scaled_by_tensor_parallelism(config, config.training.per_device_train_batch_size.value_or(8));
  }
  if (batch.samples % microbatches != 0 && config.training.per_device_train_batch_size.has_value()) {
    const std::int64_t scale = scaled_by_tensor_parallelism(config, 1);
    const std::int64_t per_device_unit = microbatches / std::gcd<std::int64_t>(microbatches, scale);
    complain("smp_options.microbatches",
             cat("must divide the replica's batch ", batch.samples, " (per_device_train_batch_size ",
                 *config.training.per_device_train_batch_size, " x ", scale,
                 config.smp.prescaled_batch ? ", prescaled)" : " tensor-parallel ranks)"),
             cat("change microbatches to ", divisors_around(batch.samples, microbatches),
                 ", or per_device_train_batch_size to ",
                 multiples_around(*config.training.per_device_train_batch_size, per_device_unit)));
  }
  if (const std::int64_t all = std::int64_t{microbatches} * batch.accumulation_steps; all > kMostMicrobatchesOfStep) {
    complain("smp_options.microbatches",
             cat("makes ", microbatches, " x ", batch.accumulation_steps, " accumulation steps = ", all,
                 " microbatches per replica and step, more than ", kMostMicrobatchesOfStep),
             "use fewer and larger ones");
    return layout;
  }
  const std::int64_t samples = batch.samples / microbatches;
  const bool fits = check_tokens(config, samples, "smp_options.microbatches", complain);
  // Evaluation cuts a replica's batch into the same number of microbatches.
  const std::int64_t evaluated = (layout.eval_batch + microbatches - 1) / microbatches;
  if (!check_tokens(config, evaluated, "training.per_device_eval_batch_size", complain) || !fits) return layout;
  layout.microbatch_size = samples;
  layout.microbatches = microbatches * batch.accumulation_steps;
  layout.accumulation_steps = batch.accumulation_steps;
  return layout;
}

Layout resolve_sizes(const Config& config, int world_size) {
  std::string problems;
  const Layout layout =
      check_sizes(config, world_size, [&](const std::string& key, const std::string& rule, const std::string& advice) {
        problems += cat(problems.empty() ? "" : "\n", key, ": ", rule, "; ", advice);
      });
  if (!problems.empty()) throw ConfigError(problems);
  return layout;
}

}  // namespace shardline
