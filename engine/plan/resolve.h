// What a run does, made once from its config: what a step computes and how the ranks share it. Everything below the
// commands takes it from here, so that no two places read the config differently.
#pragma once
#include "engine/config/keys/options.h"
#include "partitioner/layout/layout.h"

namespace shardline {

struct ResolvedRun {
  Workload workload;
  Layout layout;
};

// Resolves the run of `spec`, whose units are already split, on `world_size` ranks. `precision` replaces the config's.
// Throws ConfigError.
ResolvedRun resolve(const Config& config, const ModelSpec& spec, int world_size,
                    const std::optional<Precision>& precision = {});
// The two parts of a run. A workload does not depend on the ranks, and its global batch may be that of any layout.
Workload resolve_workload(const Config& config, const ModelSpec& spec, int64_t global_batch, bool on_accelerators,
                          const std::optional<Precision>& precision = {});
Layout resolve_layout(const Config& config, const ModelSpec& spec, int world_size);
// The fields of a layout that do not depend on the ranks: schedule, recomputation, offloading, the kind of device, and
// the sharding that the keys ask for (degree 0: over all replicas). Degrees and batch sizes are copied from `sizes`.
Layout resolve_choices(const Config& config, const ModelSpec& spec, const Layout& sizes);

// The inverse of resolving: `config`, which resolves to `from`, with the changes that make it resolve to `layout` on
// nodes of the cluster, at the same global batch and in `precision`. Keys that agree already stay; those that would be
// refused together with the new ones are unset. The number of accumulation steps may differ: it only groups
// microbatches. Throws ConfigError as place_ranks does.
Config with_layout(const Config& config, const Layout& from, const Layout& layout, Precision precision,
                   const Cluster& cluster);
// Spreads the ranks evenly over the known hosts: over as many, counted from the first, as the nodes of the cluster that
// the ranks fill, or over all if there are not more. Throws ConfigError if the ranks are not a multiple of the hosts.
void place_ranks(Config& config, int world_size, const Cluster& cluster);
// Sets the keys that select what replicas shard, and unsets those that only other levels have.
void set_sharding(SmpOptions& smp, const Sharding& sharding);
// Lets the planner place the layers.
void set_auto_partition(SmpOptions& smp);

}  // namespace shardline
