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

// The run of `spec`, as its units are split, on so many ranks. precision: in place of the config's. Throws ConfigError.
ResolvedRun resolve(const Config& config, const ModelSpec& spec, int world_size,
                    const std::optional<Precision>& precision = {});
// The parts of it: a workload does not depend on ranks, and its global batch may be of any layout.
Workload resolve_workload(const Config& config, const ModelSpec& spec, int64_t global_batch,
                          const std::optional<Precision>& precision = {});
Layout resolve_layout(const Config& config, const ModelSpec& spec, int world_size);
// A layout's fields that do not depend on the ranks: the schedule, what is recomputed and offloaded, and what is asked
// to be sharded (degree 0: over all replicas). Degrees and batch sizes stay as `sizes` has them.
Layout resolve_choices(const Config& config, const ModelSpec& spec, const Layout& sizes);

// The other way round: `config`, which resolves to `from`, changed so that it resolves to `layout`, at the same global
// batch and in `precision`. Keys stay where they say so already, and those that are refused beside the new ones are
// unset. The accumulation steps of `layout` are a way to count its microbatches and may differ. Throws ConfigError
// where the ranks cannot be spread over the hosts.
Config with_layout(const Config& config, const Layout& from, const Layout& layout, Precision precision);
// The keys that say what replicas share out, without those that only other levels have.
void set_sharding(SmpOptions& smp, const Sharding& sharding);
// The planner places the layers.
void set_auto_partition(SmpOptions& smp);

}  // namespace shardline
