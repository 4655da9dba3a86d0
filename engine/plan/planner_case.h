// The planner's view of a run: what is trained on which machines (a Job), and how (a Layout).
#pragma once
#include <memory>
#include <optional>

#include "engine/config/keys/options.h"
#include "engine/config/rules/sizes.h"
#include "partitioner/cost/layer_prices.h"

namespace shardline {

// What a plan may assume in place of what the config and its cluster file say.
struct Assumptions {
  std::optional<int> nodes;
  std::optional<Precision> precision;      // unset: the config's
  std::shared_ptr<const Profile> profile;  // unset: the config's
};

struct PlannerCase {
  Job job;
  Layout layout;
  MeshSpans spans;
  std::vector<LayerPrice> prices;  // by layer
};

// The machines that the config names in `cluster`, as many as it has hosts; without a name this machine, with the rates
// that the profile measured. ConfigError for what is wrong with the file, or missing in it.
Cluster planning_cluster(const Config& config, int world_size, const Assumptions& assumed = {});

// Throws ConfigError, also where the ranks do not fit on the cluster's devices or nodes have no link between them.
PlannerCase planner_case(const Config& config, const ModelSpec& spec, const ResolvedSizes& sizes,
                         const Assumptions& assumed = {});

// Whether the config's cluster is this machine.
bool plans_for_this_machine(const Config& config);

// Whether the ranks of the plan have GPUs: a file's machines do unless the config says CPUs.
bool has_accelerators(const Config& config);

// What the config does with most of its blocks.
Recomputed recomputed_of(const Config& config, const ModelSpec& spec);

// What of its activations waits on the host.
Offloaded offloaded_of(const Config& config, const ModelSpec& spec);

// This engine, with the config's optimizer.
Software software_of(const Config& config, const ModelSpec& spec);

// Most microbatches in flight of the training schedule; 0: what it needs.
int active_microbatches_of(const Config& config, const ResolvedSizes& sizes);

}  // namespace shardline
