#include "engine/plan/assignment.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "engine/config/keys/partition_rules.h"
#include "engine/plan/partition_file.h"
#include "engine/plan/plan.h"
#include "partitioner/cut/assign.h"
#include "partitioner/search/planned_layout.h"

namespace shardline {
namespace {

// "stage 1", or "chunk 5 (stage 1)" if stages have several chunks.
std::string chunk_name(const Schedule& schedule, int chunk) {
  const int stage = schedule.stage_of_chunk[chunk];
  return schedule.chunks() == schedule.stages ? cat("stage ", stage) : cat("chunk ", chunk, " (stage ", stage, ")");
}

// Throws ConfigError unless the chunks take the layers in execution order and none is empty.
void check_chunks(const std::string& where, const ModelSpec& spec, const Schedule& schedule,
                  const std::vector<int>& chunk_of_layer) {
  for (size_t layer = 1; layer < chunk_of_layer.size(); ++layer)
    if (chunk_of_layer[layer] < chunk_of_layer[layer - 1])
      throw ConfigError(cat(where, ": ", spec.layers[layer].name, " on ", chunk_name(schedule, chunk_of_layer[layer]),
                            " runs after ", spec.layers[layer - 1].name, " on ",
                            chunk_name(schedule, chunk_of_layer[layer - 1]),
                            "; stages must take the layers in execution order, as `shardline plan` shows them"));
  for (int chunk = 0; chunk < schedule.chunks(); ++chunk)
    if (std::find(chunk_of_layer.begin(), chunk_of_layer.end(), chunk) == chunk_of_layer.end())
      throw ConfigError(cat(where, ": ", chunk_name(schedule, chunk), " has no layer; give each of the ",
                            schedule.chunks(), " at least one layer"));
}

std::vector<int> by_block_counts(const std::vector<int>& blocks, const ModelSpec& spec, const Schedule& schedule) {
  const std::string where = "/smp_options/manual_partition";
  if (std::ssize(blocks) != schedule.chunks())
    throw ConfigError(cat(where, ": has ", blocks.size(), " numbers of blocks for ", schedule.chunks(),
                          schedule.chunks() == schedule.stages ? " stages" : " chunks", "; give one for each"));
  const int sum = std::accumulate(blocks.begin(), blocks.end(), 0);
  if (sum != spec.block_count())
    throw ConfigError(cat(where, ": places ", sum, " blocks, but the model has ", spec.block_count(),
                          "; the numbers must add up to that"));
  std::vector<int> chunk_of_layer;
  int chunk = 0, left = blocks[0], unplaced = sum;
  for (const auto& layer : spec.layers) {
    while (layer.is_block && left == 0) left = blocks[++chunk];
    if (layer.is_block) --left, --unplaced;
    chunk_of_layer.push_back(layer.is_block || unplaced > 0 ? chunk : schedule.chunks() - 1);
  }
  return chunk_of_layer;
}

std::vector<int> by_rules(const Config& config, const PartitionByHand& partition, const ModelSpec& spec,
                          const Schedule& schedule) {
  if (schedule.chunks() != schedule.stages)
    throw ConfigError(cat("/smp_options/manual_partition: this schedule has ", schedule.chunks(), " chunks on ",
                          schedule.stages, " stages; give the number of blocks of each chunk"));
  std::vector<int> chunk_of_layer;
  std::string homeless;
  const auto stages = stages_by_hand(partition, spec);
  for (size_t i = 0; i < stages.size(); ++i) {
    const LayerSpec& layer = spec.layers[i];
    int stage = stages[i];
    if (stage < 0) stage = config.smp.default_partition.value_or(-1);
    if (stage < 0) homeless += cat(homeless.empty() ? "" : ", ", layer.name);
    if (stage >= schedule.stages)
      throw ConfigError(cat("/smp_options/manual_partition: places ", layer.name, " on stage ", stage,
                            ", but pipeline_parallel_degree is ", schedule.stages));
    chunk_of_layer.push_back(schedule.stages == 1 ? 0 : stage);
  }
  if (!homeless.empty() && schedule.stages > 1)
    throw ConfigError(cat("/smp_options/auto_partition: is false, but these layers have no stage: ", homeless,
                          "; name them in manual_partition, or set default_partition"));
  return chunk_of_layer;
}

std::vector<int> assigned_by_hand(const Config& config, const ModelSpec& spec, const Schedule& schedule) {
  const PartitionByHand& partition = config.smp.manual_partition;
  const auto chunks = partition.blocks.empty() ? by_rules(config, partition, spec, schedule)
                                               : by_block_counts(partition.blocks, spec, schedule);
  check_chunks("/smp_options/manual_partition", spec, schedule, chunks);
  return chunks;
}

}  // namespace

std::vector<int> assign_layers(const Config& config, const ResolvedRun& run, const Machines& machines) {
  const auto& [workload, layout] = run;
  require_links(machines.cluster, layout);
  const Schedule schedule = training_schedule(layout);
  require_layers(workload.spec.layers.size(), schedule.stage_of_chunk);
  if (config.smp.load_partition) {
    const auto& path = config.smp.partition_file;
    const auto chunks = read_partition_file(path, workload.spec, schedule);
    check_chunks("partition_file " + path, workload.spec, schedule, chunks);
    return chunks;
  }
  if (!config.smp.auto_partition) return assigned_by_hand(config, workload.spec, schedule);
  const auto spans = mesh_spans(layout.mesh(), machines.cluster.devices_per_node, layout.sharding.degree);
  return cut_model(workload, machines, layout, schedule, spans, layer_prices(workload, machines, layout, spans),
                   config.smp.memory_weight.value_or(0))
      .chunk_of_layer;
}

}  // namespace shardline
