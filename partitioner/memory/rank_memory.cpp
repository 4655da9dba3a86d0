#include "partitioner/memory/rank_memory.h"

#include <algorithm>
#include <map>

#include "core/model/microbatch.h"
#include "partitioner/memory/device_bytes.h"
#include "partitioner/memory/layer_bytes.h"
#include "partitioner/memory/parameter_memory.h"
#include "pipeline/schedule/messages_held.h"

namespace shardline {
namespace {

// Bytes of the optimizer's states for `elements` of a parameter.
double optimizer_bytes(const Workload& workload, const ParamSpec& param, int64_t elements) {
  if (!workload.software.own_ops) return workload.software.optimizer_bytes * elements;
  return optimizer_state_bytes(workload.optimizer, param, elements, width_of(workload.types.exact));
}

// States that are as long as the values they update have the same padding.
double state_bytes(const Workload& workload, const ParameterElements& elements) {
  double bytes = 0;
  int64_t padding = elements.trained;
  for (const auto& [spec, part] : elements.trained_parts) {
    bytes += optimizer_bytes(workload, *spec, part);
    padding -= part;
  }
  const bool factored = workload.optimizer.kind == OptimizerOptions::Kind::adafactor;
  return factored ? bytes : bytes + optimizer_bytes(workload, {}, padding);
}

// Adds the optimizer's states and, unless the passes use them directly, the values as they are saved: on the device, or
// on its host together with a copy of the trained ones' gradients and, in half precision, of their rounded values.
void add_states(MemoryBytes& bytes, const Workload& workload, const ParameterElements& elements, bool on_host) {
  const NumberTypes& types = workload.types;
  const double trained = elements.trained;
  const double exact = width_of(types.exact) * trained;
  const bool half = types.values != types.exact;
  const double rounded = half ? width_of(types.values) * trained : 0;
  const double frozen = half ? width_of(types.exact) * static_cast<double>(elements.frozen) : 0;
  const double states = state_bytes(workload, elements);
  if (on_host)
    bytes.host += states + 2 * exact + rounded + frozen;
  else
    bytes.optimizer = states + (half ? exact : 0) + frozen;
}

// Every rank holds the inputs of all microbatches of its replica.
double input_bytes(const Workload& workload, const Layout& layout) {
  if (!workload.software.own_ops) return 0;
  const int64_t samples = int64_t{layout.microbatch_size} * layout.microbatches;
  const int64_t types = workload.spec.type_count > 0 ? sizeof(int64_t) : 0;
  const int64_t rows = workload.sequence_length * (kInputBytesPerRow + types);
  return static_cast<double>(samples) * static_cast<double>(rows + workload.spec.column_bytes);
}

MemoryBytes tensor_bytes(const PlacedLayers& placed, Coordinates at, const std::vector<LayerBytes>& layers,
                         const std::vector<int64_t>& held) {
  const auto& [types, software] = std::tie(placed.workload.types, placed.workload.software);
  const double value = width_of(types.values);
  const ParameterElements elements = parameter_elements(placed, at);
  const ActivationPeak peak = activation_peak(placed, at.p, layers, held);
  MemoryBytes bytes;
  bytes.weights = value * (elements.values + elements.most_gathered);
  bytes.gradients = software.gradient_bytes * (elements.gradients + elements.most_open);
  bytes.activations = peak.kept;
  bytes.communication = peak.total - peak.in_use;
  bytes.workspace = peak.in_use - peak.kept + input_bytes(placed.workload, placed.layout);
  add_states(bytes, placed.workload, elements, placed.layout.states_on_host);
  if (placed.layout.on_accelerators) bytes.host += peak.offloaded;  // CPU ranks offload to files
  return bytes;
}

void add(MemoryBytes& bytes, const DeviceBytes& device) {
  bytes.communication += device.communicators + device.later;
  bytes.workspace += device.runtime;
}

}  // namespace

ActivationPeak activation_peak(const PlacedLayers& placed, int stage, const std::vector<LayerBytes>& layers,
                               const std::vector<int64_t>& held) {
  return peak_activation_bytes(placed.train, stage, placed.layers_of_chunk,
                               {placed.layout.recompute, placed.layout.offload, placed.layout.on_accelerators,
                                placed.workload.spec.first_with_backward()},
                               layers, held);
}

std::vector<std::vector<int64_t>> border_bytes_held(const PlacedLayers& placed) {
  const auto& layers = placed.workload.spec.layers;
  const WorkShape shape = placed.layout.work_shape(placed.workload);
  int64_t border = 0;
  std::vector<double> flops;  // by chunk, for a forward; each half of the backward has about as many
  for (const auto& chunk : placed.layers_of_chunk) {
    if (chunk.front() > 0) border = std::max(border, border_bytes(layers[chunk.front() - 1], shape));
    flops.push_back(0);
    for (const int layer : chunk) flops.back() += layers[layer].flops_per_token;
  }
  const auto cost = [&](int, const Instruction& instruction) {
    return computes(instruction.op) ? flops[instruction.chunk] : 0;
  };
  std::vector<std::vector<int64_t>> bytes;
  const int host_ahead = placed.layout.on_accelerators ? kInstructionsAhead : 0;
  for (const auto& stage : messages_held(placed.train, cost, host_ahead)) {
    bytes.emplace_back();
    for (const int held : stage) bytes.back().push_back(held * border);
  }
  return bytes;
}

std::vector<MemoryBytes> memory_by_rank(const PlacedLayers& placed) {
  const Mesh mesh = placed.layout.mesh();
  auto ranks = tensor_bytes_by_rank(placed);
  for (int rank = 0; rank < mesh.size(); ++rank) add(ranks[rank], device_bytes(placed, mesh.at(rank).p));
  return ranks;
}

std::vector<MemoryBytes> tensor_bytes_by_rank(const PlacedLayers& placed) {
  const Mesh mesh = placed.layout.mesh();
  const auto held = border_bytes_held(placed);
  std::vector<std::vector<LayerBytes>> layers;  // by t
  for (int t = 0; t < mesh.t(); ++t) layers.push_back(layer_bytes(placed.workload, placed.layout, t));
  std::map<std::tuple<int, int, int>, MemoryBytes> of;  // by stage, t and shard; ranks with equal keys use equal memory
  std::vector<MemoryBytes> ranks;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const Coordinates at = mesh.at(rank);
    const int shard = mesh.shared(at.d, placed.layout.sharding.degree).part;
    const auto [entry, is_new] = of.try_emplace({at.p, at.t, shard});
    if (is_new) entry->second = tensor_bytes(placed, at, layers[at.t], held[at.p]);
    ranks.push_back(entry->second);
  }
  return ranks;
}

std::vector<MemoryBytes> memory_by_stage(const PlacedLayers& placed) {
  const auto held = border_bytes_held(placed);
  const auto layers = layer_bytes(placed.workload, placed.layout, 0);
  std::vector<MemoryBytes> stages;
  for (int stage = 0; stage < placed.layout.pipeline; ++stage) {
    stages.push_back(tensor_bytes(placed, {.p = stage}, layers, held[stage]));
    add(stages.back(), device_bytes(placed, stage));
  }
  return stages;
}

double least_state_bytes(const Workload& workload, const Layout& layout, const LayerSpec& layer,
                         const std::function<bool(const ParamSpec&)>& is_beside) {
  const auto held = [&](const ParamSpec& param, Sharding::Level stage) {
    const bool whole = layout.sharded() < stage ||
                       (layout.sharded() == Sharding::Level::weights && param.numel() < layout.sharding.whole_below);
    const int64_t elements = local_elements(param, layout.tensor);
    return whole ? elements : elements / layout.sharding.degree;
  };
  using Level = Sharding::Level;
  const NumberTypes& types = workload.types;
  double bytes = 0;
  for (const auto& param : layer.params) {
    const bool is_held = !param.tied_to.empty() && is_beside(param);
    if (!is_held) bytes += held(param, Level::weights) * width_of(types.values);
    if (!param.trainable) continue;
    bytes += held(param, Level::gradients) * workload.software.gradient_bytes;
    if (is_held || layout.states_on_host) continue;
    const int64_t trained = held(param, Level::optimizer);
    if (types.values != types.exact) bytes += trained * width_of(types.exact);
    bytes += optimizer_bytes(workload, param, trained);
  }
  return bytes;
}

}  // namespace shardline
