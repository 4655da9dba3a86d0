#include "engine/plan/layout_search.h"

#include <algorithm>

#include "core/error.h"
#include "engine/config/config.h"
#include "engine/config/rules/sizes.h"
#include "engine/plan/tensor_splits.h"
#include "engine/run/local_cluster.h"
#include "engine/run/model_source.h"
#include "engine/run/ranks.h"

namespace shardline {
namespace {

// A cluster file may have more nodes than there are hosts to run on.
int usable_nodes(const Config& config, const Cluster& cluster, const Assumptions& assumed) {
  const int hosts = hosts_of(config).size();
  return assumed.nodes || hosts == 0 ? cluster.nodes : std::min(cluster.nodes, hosts);
}

std::vector<int> worlds_of(const Config& config, const Cluster& cluster, Ranking ranking, const Assumptions& assumed) {
  if (config.mpi.processes_per_host > 0) return {configured_world_size(config)};
  int nodes = usable_nodes(config, cluster, assumed);
  std::vector<int> worlds = {nodes * cluster.devices_per_node};
  // Fewer nodes take longer, but may cost less.
  while (ranking == Ranking::cost && nodes % 2 == 0) worlds.push_back((nodes /= 2) * cluster.devices_per_node);
  const int hosts = available_hosts(config);
  std::erase_if(worlds, [&](int world) { return cluster.nodes_of(world) > hosts && world % hosts != 0; });
  if (worlds.empty()) ranks_per_host(config, cluster.devices());  // throws a ConfigError that says why
  return worlds;
}

// Makes the model for other degrees. Units with "auto" are split by rule: prices would need a plan for each layout. The
// settings of candidates say so; if only a degree is "auto", the run may still keep such a unit whole to be faster.
std::function<ModelSpec(int, bool)> spec_of_degrees(const Config& config, const ModelSource& model) {
  return [config, &model](int tensor, bool sequence_parallel) {
    Config other = config;
    other.smp.tensor_parallel_degree = tensor;
    other.smp.optimize = sequence_parallel ? Optimize::memory : Optimize::speed;
    return make_spec(other, model, splits_by_rule(other, model.spec));
  };
}

// A program may have been exported for microbatches of one size.
void keep_fixed_samples(const ModelSource& model, SearchSpace& space) {
  const int64_t samples = model.exported ? model.exported->program->fixed_samples : 0;
  if (samples > 0) space.microbatch_sizes = {int(samples)};
}

// Leaves open what the config gives as "auto"; everything else is as in the config.
SearchSpace open_space(const Config& config, const Cluster& cluster, const ModelSource& model, int world) {
  const SmpOptions& smp = config.smp;
  const auto fixed = [](int value) { return value == kAuto ? std::vector<int>() : std::vector<int>{value}; };
  SearchSpace space{.base = resolve_choices(config, model.spec, {}),
                    .spec = spec_of_degrees(config, model),
                    .worlds = {world},
                    .tensor = fixed(smp.tensor_parallel_degree),
                    .pipeline = fixed(smp.pipeline_parallel_degree),
                    .microbatches = fixed(smp.microbatches),
                    .schedules = {smp.pipeline},
                    .memory_weight = smp.memory_weight.value_or(0)};
  if (smp.ddp == false) space.replicas = space.tensor = {1};
  Layout& base = space.base;
  base.active_microbatches = smp.active_microbatches.value_or(0);
  space.recompute = {base.recompute};
  space.sequence_parallel = {smp.optimize == Optimize::memory};
  space.placements = {smp.placement_strategy};
  if (smp.microbatches != kAuto) space.microbatch_sizes = {};
  keep_fixed_samples(model, space);
  if (smp.virtual_pipeline_degree == kAuto)
    space.chunks.insert(space.chunks.begin(), 1);
  else
    space.chunks = {smp.virtual_pipeline_degree};
  space.offload = {cluster.host.bytes_per_second > 0 ? base.offload : OffloadOptions{}};
  if (smp.sharded_data_parallel_degree == kAuto) {
    space.sharding_degrees = {};
  } else {
    space.sharded = {base.sharding.level};
    space.sharding_degrees = {smp.sharded_data_parallel_degree};
  }
  return space;
}

// True if P and T are given and nothing else determines the number of ranks: it is P x T, on one host.
bool degrees_say_ranks(const Config& config) {
  return config.mpi.processes_per_host == 0 && plans_for_this_machine(config) &&
         config.smp.pipeline_parallel_degree != kAuto && config.smp.tensor_parallel_degree != kAuto;
}

// Whether the config allows no second rank.
bool has_one_rank(const Config& config) {
  const auto communicator = config.runtime.communicator;
  if (communicator == CommunicatorChoice::threads) return config.runtime.memory_cap > 0;
  return communicator == CommunicatorChoice::local || !config.mpi.enabled;
}

// The number of ranks that the run will have: the config's number if it determines one, else all devices of the
// cluster, else all GPUs or cores of each host.
int ranks_of_auto(const Config& config, const Assumptions& assumed) {
  if (has_one_rank(config)) return 1;
  if (config.mpi.processes_per_host > 0) return configured_world_size(config);
  if (!plans_for_this_machine(config)) {
    const Cluster cluster = planning_cluster(config, 1, assumed);
    return usable_nodes(config, cluster, assumed) * cluster.devices_per_node;
  }
  if (degrees_say_ranks(config)) return configured_world_size(config);
  const int gpus = config.runtime.device == DeviceChoice::cpu ? 0 : gpu_count();
  return (gpus > 0 ? gpus : usable_cores()) * available_hosts(config);
}

}  // namespace

bool leaves_degrees_open(const Config& config) {
  const SmpOptions& smp = config.smp;
  return smp.pipeline_parallel_degree == kAuto || smp.tensor_parallel_degree == kAuto || smp.microbatches == kAuto ||
         smp.virtual_pipeline_degree == kAuto || smp.sharded_data_parallel_degree == kAuto;
}

Ranking ranking_from(const std::string& name) {
  if (name == "time") return Ranking::time;
  if (name == "cost") return Ranking::cost;
  if (name == "memory") return Ranking::memory;
  throw ConfigError(cat("--search ", name, ": use time, cost or memory"));
}

Candidates search_layouts(const Config& written, const Config& config, const PlannedModel& planned, Ranking ranking,
                          const Assumptions& assumed) {
  const auto& [model, machines, plan] = planned;
  const Cluster& cluster = machines.cluster;
  if (ranking == Ranking::cost && !cluster.hourly_price)
    throw ConfigError(cat("--search cost: the cluster \"", cluster.name,
                          "\" has no hourly_price; name a file that has one with --cluster"));
  SearchSpace space{.base = plan.layout,
                    .spec = spec_of_degrees(config, model),
                    .worlds = worlds_of(config, cluster, ranking, assumed),
                    .placements = {plan.layout.placement},
                    .other_placements = {"DPT", "DTP", "PDT", "PTD", "TDP", "TPD"},
                    .memory_weight = config.smp.memory_weight.value_or(0)};
  keep_fixed_samples(model, space);
  space.base.active_microbatches = 0;  // each schedule uses what it needs
  space.base.accumulation_steps = 1;   // the search chooses all microbatches of a step
  space.offload = {{}, {.enabled = true, .horizon = plan.layout.offload.horizon}};
  Candidates candidates{.ranking = ranking,
                        .found = search(plan.workload, machines, space, ranking),
                        .hourly_price = cluster.hourly_price.value_or(0)};
  Config cut_by_planner = config;
  set_auto_partition(cut_by_planner.smp);
  for (const auto& best : candidates.found.best) {
    Config made = with_layout(cut_by_planner, plan.layout, best.layout, plan.workload.precision(), cluster);
    made.smp.tensor_parallel_layers = rules_without_prices(made, model.spec);
    candidates.settings.push_back(settings_between(written, made));
  }
  return candidates;
}

Config with_chosen_degrees(const Config& config, const Assumptions& assumed) {
  if (!leaves_degrees_open(config)) return config;
  const int world = ranks_of_auto(config, assumed);
  const ModelSource model = open_model(config);
  const Workload workload = resolve_workload(config, model.spec, *config.training.global_batch_size,
                                             has_accelerators(config), assumed.precision);
  const Machines machines = planning_machines(config, workload, world, assumed);
  const auto found = search(workload, machines, open_space(config, machines.cluster, model, world), Ranking::time);
  if (found.best.empty())
    throw ConfigError(cat("/smp_options: no layout that \"auto\" may choose fits the ", world, " ranks of \"",
                          machines.cluster.name, "\": ", to_string(found.closest().layout), ": ",
                          found.closest().reason, "; recompute or shard more, use more ranks or a smaller model"));
  const Layout& best = found.best.front().layout;
  Config chosen = config;
  const auto choose = [](int& degree, int value) {
    if (degree == kAuto) degree = value;
  };
  if (config.smp.sharded_data_parallel_degree == kAuto) set_sharding(chosen.smp, best.sharding);
  choose(chosen.smp.pipeline_parallel_degree, best.pipeline);
  choose(chosen.smp.tensor_parallel_degree, best.tensor);
  choose(chosen.smp.microbatches, best.microbatches);
  choose(chosen.smp.virtual_pipeline_degree, best.chunks_per_stage);
  if (config.mpi.processes_per_host == 0 && !degrees_say_ranks(config))
    place_ranks(chosen, best.world(), machines.cluster);
  return chosen;
}

}  // namespace shardline
