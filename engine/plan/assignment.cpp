#include "engine/plan/assignment.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "core/error.h"
#include "core/files/json_reader.h"
#include "engine/config/keys/partition_rules.h"
#include "engine/plan/plan.h"
#include "partitioner/cut/assign.h"
#include "partitioner/search/planned_layout.h"

namespace shardline {
namespace {

// "stage 1", or "chunk 5 (stage 1)" where stages have several.
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
      throw ConfigError(cat(where, ": ", chunk_name(schedule, chunk), " has no layer; give every one of the ",
                            schedule.chunks(), " at least one"));
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
    throw ConfigError(cat("/smp_options/auto_partition: is false, but nothing says where ", homeless,
                          " go; name them in manual_partition, or set default_partition"));
  return chunk_of_layer;
}

std::vector<int> assigned_by_hand(const Config& config, const ModelSpec& spec, const Schedule& schedule) {
  const PartitionByHand& partition = config.smp.manual_partition;
  const auto chunks = partition.blocks.empty() ? by_rules(config, partition, spec, schedule)
                                               : by_block_counts(partition.blocks, spec, schedule);
  check_chunks("/smp_options/manual_partition", spec, schedule, chunks);
  return chunks;
}

// Reads a partition file. The k-th list of a stage is its k-th chunk. Errors say which part of the file does not match
// this model and schedule.
class PartitionFile {
 public:
  PartitionFile(const std::string& path, const ModelSpec& spec, const Schedule& schedule)
      : where_("partition_file " + path), spec_(spec), schedule_(schedule), document_(read_json_file(path)) {
    JsonReader(document_).throw_problems();
  }

  std::vector<int> chunk_of_layer() {
    const auto& file = document_.value;
    if (!file.is_object() || !file.contains("stages") || !file["stages"].is_array())
      fail("has no list \"stages\"; name the plan.json of a run");
    const auto& stages = file["stages"];
    if (std::ssize(stages) != schedule_.stages)
      fail(cat("has ", stages.size(), " stages, but pipeline_parallel_degree is ", schedule_.stages));
    for (int stage = 0; stage < schedule_.stages; ++stage) read_stage(stage, stages[stage]);
    std::string missing;
    std::vector<int> chunks;
    for (const auto& layer : spec_.layers) {
      const auto found = chunk_of_name_.find(layer.name);
      if (found == chunk_of_name_.end()) missing += cat(missing.empty() ? "" : ", ", layer.name);
      chunks.push_back(found == chunk_of_name_.end() ? 0 : found->second);
    }
    if (!missing.empty()) fail(cat("does not place ", missing, " of the model"));
    check_chunks(where_, spec_, schedule_, chunks);
    return chunks;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw ConfigError(cat(where_, ": ", what)); }

  void read_stage(int stage, const nlohmann::json& entry) {
    if (!entry.is_object() || !entry.contains("chunks") || !entry["chunks"].is_array())
      fail(cat("stage ", stage, " has no list \"chunks\""));
    if (entry.contains("stage") && entry["stage"] != stage)
      fail(cat("stage ", stage, " is called ", entry["stage"].dump(), "; stages must be in order"));
    std::vector<int> chunks;
    for (int chunk = 0; chunk < schedule_.chunks(); ++chunk)
      if (schedule_.stage_of_chunk[chunk] == stage) chunks.push_back(chunk);
    if (entry["chunks"].size() != chunks.size())
      fail(cat("stage ", stage, " has ", entry["chunks"].size(), " chunks, but the schedule \"", schedule_.name,
               "\" gives it ", chunks.size()));
    for (size_t i = 0; i < chunks.size(); ++i)
      for (const auto& name : entry["chunks"][i]) place(name, chunks[i]);
  }

  void place(const nlohmann::json& name, int chunk) {
    const auto known = std::any_of(spec_.layers.begin(), spec_.layers.end(),
                                   [&](const LayerSpec& layer) { return name == layer.name; });
    if (!known) fail(cat("places ", name.dump(), ", which is not a layer of the model"));
    if (!chunk_of_name_.emplace(name.get<std::string>(), chunk).second) fail(cat("places ", name.dump(), " twice"));
  }

  const std::string where_;
  const ModelSpec& spec_;
  const Schedule& schedule_;
  const JsonDocument document_;
  std::map<std::string, int> chunk_of_name_;
};

}  // namespace

std::vector<int> assign_layers(const Config& config, const ResolvedRun& run, const Machines& machines) {
  const auto& [workload, layout] = run;
  require_links(machines.cluster, layout);
  const Schedule schedule = training_schedule(layout);
  require_layers(workload.spec.layers.size(), schedule.stage_of_chunk);
  if (config.smp.load_partition)
    return PartitionFile(config.smp.partition_file, workload.spec, schedule).chunk_of_layer();
  if (!config.smp.auto_partition) return assigned_by_hand(config, workload.spec, schedule);
  const auto spans = mesh_spans(layout.mesh(), machines.cluster.devices_per_node, layout.sharding.degree);
  return cut_model(workload, machines, layout, schedule, spans, layer_prices(workload, machines, layout, spans),
                   config.smp.memory_weight.value_or(0))
      .chunk_of_layer;
}

}  // namespace shardline
