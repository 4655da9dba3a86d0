// How many samples go where in one optimizer step: the only place that does this arithmetic.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/config/keys/options.h"

namespace shardline {

// global_batch = microbatch_size x microbatches x accumulation_steps x replicas
struct ResolvedSizes {
  int replicas = 1;                     // D
  int pipeline = 1;                     // P
  int tensor = 1;                       // T
  int microbatches = 1;                 // per replica and accumulation step
  int microbatch_size = 1;              // samples
  int accumulation_steps = 1;           // per optimizer step
  int loader_batches = 1;               // per optimizer step: see SampleOrderOptions
  std::int64_t replica_batch = 1;       // samples of one replica in one accumulation step
  std::int64_t global_batch = 1;        // samples per optimizer step
  std::int64_t eval_replica_batch = 1;  // samples of one replica in one evaluation step
  bool operator==(const ResolvedSizes&) const = default;
};

// The hosts that mpi_options names, else those of the batch system's allocation; empty: this host alone.
std::vector<std::string> hosts_of(const Config& config);
// How many that is: at least one.
int available_hosts(const Config& config);
// How many the ranks are on: one where only P x T says how many ranks there are.
int used_hosts(const Config& config);

// used_hosts x processes_per_host; else P x T.
int configured_world_size(const Config& config);

// Throws ConfigError naming all rules that do not hold, with the neighbours that do.
ResolvedSizes resolve_sizes(const Config& config, int world_size);

// Called for a violated rule: the key ("smp_options.microbatches"), the rule, what to change.
using Complaint = std::function<void(const std::string& key, const std::string& rule, const std::string& advice)>;

// resolve_sizes for callers who collect complaints; the result means something only when there were none.
ResolvedSizes check_sizes(const Config& config, int world_size, const Complaint& complain);

}  // namespace shardline
