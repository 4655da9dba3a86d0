#include "partitioner/memory/device_bytes.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

namespace shardline {
namespace {

constexpr double kRuntimeBytes = 1 << 30;  // context, kernels and library workspaces

// The number of groups that make_rank_groups makes: world, pp, tp, rdp and dp.
int groups_of_mesh(const Layout& layout) {
  return (layout.world() > 1) + (layout.pipeline > 1) + (layout.tensor > 1) + (layout.replicas > 1) +
         (layout.replicas * layout.tensor > 1);
}

// The number of groups that ShardGroups makes: ranks that share a copy, with and without T, and ranks that hold the
// same shard.
int groups_of_shards(const Layout& layout) {
  const Sharding& sharding = layout.sharding;
  const int copies = layout.replicas / sharding.degree;
  if (sharding.level == Sharding::Level::none || copies == 1) return 0;
  return (sharding.degree > 1) + (sharding.degree * layout.tensor > 1) + 1;
}

// The number of groups for messages: two channels for each adjacent stage.
int channels(const PlacedLayers& placed, int stage) {
  std::set<int> neighbours;
  const auto& stages = placed.train.stage_of_chunk;
  for (size_t chunk = 1; chunk < stages.size(); ++chunk) {
    if (stages[chunk - 1] == stage) neighbours.insert(stages[chunk]);
    if (stages[chunk] == stage) neighbours.insert(stages[chunk - 1]);
  }
  neighbours.erase(stage);
  return 2 * static_cast<int>(neighbours.size());
}

// The number of groups that StageParameters makes: one for each tied parameter that this stage shares with others.
int ties(const PlacedLayers& placed, int stage) {
  const auto& layers = placed.workload.spec.layers;
  std::map<std::string, std::set<int>> stages;
  for (size_t layer = 0; layer < layers.size(); ++layer)
    for (const auto& param : layers[layer].params)
      if (!param.tied_to.empty()) stages[param.tied_to].insert(placed.stage_of_layer[layer]);
  int count = 0;
  for (auto& [name, holders] : stages) {
    const auto owns = [&name = name](const LayerSpec& layer) {
      return name.size() > layer.name.size() && name[layer.name.size()] == '.' && name.starts_with(layer.name);
    };
    const auto owner = std::ranges::find_if(layers, owns);
    if (owner != layers.end()) holders.insert(placed.stage_of_layer[owner - layers.begin()]);
    count += holders.size() > 1 && holders.contains(stage);
  }
  return count;
}

DeviceBytes bytes_of(const Layout& layout, int later) {
  return {.runtime = kRuntimeBytes,
          .communicators = groups_of_mesh(layout) * kCommunicatorBytes,
          .later = later * kCommunicatorBytes};
}

}  // namespace

DeviceBytes device_bytes(const PlacedLayers& placed, int stage) {
  if (!placed.layout.on_accelerators) return {};
  return bytes_of(placed.layout, groups_of_shards(placed.layout) + channels(placed, stage) + ties(placed, stage));
}

DeviceBytes least_device_bytes(const Layout& layout) {
  if (!layout.on_accelerators) return {};
  return bytes_of(layout, groups_of_shards(layout) + 2 * (layout.pipeline > 1));
}

}  // namespace shardline
