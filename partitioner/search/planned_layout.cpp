#include "partitioner/search/planned_layout.h"

#include <algorithm>

#include "core/error.h"
#include "partitioner/cut/assign.h"
#include "partitioner/cut/partition.h"
#include "partitioner/memory/layer_bytes.h"

namespace shardline {
namespace {

// By chunk: how many microbatches it keeps when its stage keeps the most.
std::vector<double> kept_counts(const Schedule& schedule) {
  std::vector<double> counts(schedule.stage_of_chunk.size());
  for (const auto& list : schedule.instructions) {
    std::vector<int> now(counts.size()), at_peak(counts.size());
    int kept = 0, peak = 0;
    for (const auto& instruction : list) {
      auto& count = now[instruction.chunk];
      if (instruction.op == Op::backward_input) --count, --kept;
      if (instruction.op != Op::forward) continue;
      ++count;
      if (++kept <= peak) continue;
      peak = kept;
      at_peak = now;
    }
    for (size_t chunk = 0; chunk < counts.size(); ++chunk) counts[chunk] += at_peak[chunk];
  }
  return counts;
}

PartitionProblem partition_problem(const Workload& workload, const Machines& machines, const Layout& layout,
                                   const Schedule& schedule, const MeshSpans& spans,
                                   const std::vector<LayerPrice>& prices, double memory_weight) {
  const size_t layers = workload.spec.layers.size();
  const Pricing pricing = pricing_for(workload, machines);
  const bool near = layout.pipeline == 1 || spans.near[0][1];
  PartitionProblem problem{
      .stage_of_chunk = schedule.stage_of_chunk, .kept_counts = kept_counts(schedule), .memory_weight = memory_weight};
  const auto bytes = layer_bytes(workload, layout, 0);
  const bool ends_meet = schedule.stage_of_chunk.front() == schedule.stage_of_chunk.back();
  for (size_t layer = 0; layer < layers; ++layer) {
    const auto& spec = workload.spec.layers[layer];
    problem.seconds.push_back(prices[layer].whole());
    problem.kept_bytes.push_back(kept_bytes(workload, layout, layer, bytes[layer]) -
                                 moved_bytes(workload, layout, layer, bytes[layer]));
    const auto is_beside_first = [&](const ParamSpec& param) {
      return ends_meet && layer + 1 == layers && param.tied_to.starts_with(workload.spec.layers.front().name + ".");
    };
    problem.state_bytes.push_back(least_state_bytes(workload, layout, spec, is_beside_first));
    if (layout.pipeline > 1)
      problem.cut_seconds.push_back(pricing.message(border_bytes(spec, layout.work_shape(workload)), near));
  }
  return problem;
}

// The best cut whose states and kept activations fit in memory; if there is none, `free`, the best cut without a
// limit.
std::vector<int> cut_layers(PartitionProblem problem, const std::vector<int>& free, double room) {
  const size_t stages = 1 + *std::max_element(problem.stage_of_chunk.begin(), problem.stage_of_chunk.end());
  std::vector<double> bytes(stages);
  for (size_t layer = 0; layer < free.size(); ++layer) {
    const size_t chunk = free[layer];
    bytes[problem.stage_of_chunk[chunk]] +=
        problem.state_bytes[layer] + problem.kept_counts[chunk] * problem.kept_bytes[layer];
  }
  if (*std::max_element(bytes.begin(), bytes.end()) <= room) return free;
  problem.memory_caps.assign(stages, room);
  try {
    return partition(problem).chunk_of_layer;
  } catch (const ConfigError&) {
    return free;
  }
}

void check(const Workload& workload, const Machines& machines, const Layout& layout) {
  if (int64_t{layout.replicas} * layout.microbatches * layout.microbatch_size != workload.global_batch)
    throw ConfigError(cat("the global batch is ", workload.global_batch, ", but ", layout.replicas, " replicas x ",
                          layout.microbatches, " microbatches x ", layout.microbatch_size, " samples are ",
                          int64_t{layout.replicas} * layout.microbatches * layout.microbatch_size));
  if (layout.world() > machines.cluster.devices())
    throw ConfigError(
        cat("D x P x T is ", layout.world(), ", but \"", machines.cluster.name, "\" has ", machines.cluster.nodes,
            machines.cluster.nodes == 1 ? " node of " : " nodes of ", machines.cluster.devices_per_node,
            machines.cluster.devices_per_node == 1 ? " device" : " devices", ": change nodes or a degree"));
  if (layout.replicas % layout.sharding.degree != 0)
    throw ConfigError(
        cat("a sharding degree of ", layout.sharding.degree, " must divide the ", layout.replicas, " replicas"));
}

}  // namespace

Cut cut_model(const Workload& workload, const Machines& machines, const Layout& layout, const Schedule& schedule,
              const MeshSpans& spans, const std::vector<LayerPrice>& prices, double memory_weight) {
  check(workload, machines, layout);
  require_layers(workload.spec.layers.size(), schedule.stage_of_chunk);
  const Cluster& cluster = machines.cluster;
  const auto problem = partition_problem(workload, machines, layout, schedule, spans, prices, memory_weight);
  const auto free = partition(problem).chunk_of_layer;
  const auto with_memory = [&](const std::vector<int>& chunk_of_layer) {
    return Cut{chunk_of_layer, memory_by_stage({workload, layout, schedule, chunk_of_layer})};
  };
  const Cut cut = with_memory(cut_layers(problem, free, cluster.memory_bytes));
  const MemoryFit fit = memory_fit(cluster, cut.memory);
  // Communication and workspace need memory, too.
  const MemoryBytes& most = cut.memory[fit.stage];
  const double room = cluster.memory_bytes - most.communication - most.workspace;
  if (fit.fits || room <= 0) return cut;
  const auto narrower = cut_layers(problem, free, room);
  return narrower == cut.chunk_of_layer ? cut : with_memory(narrower);
}

PlannedLayout describe_layout(const Workload& workload, const Machines& machines, const Layout& layout,
                              const Schedule& schedule, const MeshSpans& spans, const std::vector<LayerPrice>& prices,
                              const Cut& cut) {
  check(workload, machines, layout);
  return {.layout = layout,
          .stage_of_chunk = schedule.stage_of_chunk,
          .chunk_of_layer = cut.chunk_of_layer,
          .step = estimate_step(workload, machines, layout, schedule, cut.chunk_of_layer, prices, spans),
          .memory = cut.memory,
          .fit = memory_fit(machines.cluster, cut.memory)};
}

PlannedLayout plan_layout(const Workload& workload, const Machines& machines, const Layout& layout,
                          double memory_weight) {
  check(workload, machines, layout);
  const auto spans = mesh_spans(layout.mesh(), machines.cluster.devices_per_node, layout.sharding.degree);
  const auto schedule = training_schedule(layout);
  const auto prices = layer_prices(workload, machines, layout, spans);
  return describe_layout(workload, machines, layout, schedule, spans, prices,
                         cut_model(workload, machines, layout, schedule, spans, prices, memory_weight));
}

}  // namespace shardline
