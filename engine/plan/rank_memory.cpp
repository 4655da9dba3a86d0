#include "engine/plan/rank_memory.h"

#include <map>

#include "engine/plan/parameter_memory.h"

namespace shardline {
namespace {

// States as long as what they update have its padding too.
double state_bytes(const Workload& workload, const ParameterElements& elements) {
  const OptimizerOptions& options = workload.optimizer;
  const int64_t width = width_of(workload.types.exact);
  int64_t bytes = 0, parts = 0;
  for (const auto& [spec, part] : elements.trained_parts) {
    bytes += optimizer_state_bytes(options, *spec, part, width);
    parts += part;
  }
  if (options.kind == OptimizerOptions::Kind::adafactor) return static_cast<double>(bytes);
  return static_cast<double>(bytes + optimizer_state_bytes(options, {}, elements.trained - parts, width));
}

// The values that are trained, where passes do not see them themselves, and their states: on the device, or on its host
// with a copy of their gradients, and one of the values as passes see them where those are of half precision.
void add_states(MemoryBytes& bytes, const Workload& workload, const ParameterElements& elements, bool on_host) {
  const NumberTypes& types = workload.types;
  const auto trained = static_cast<double>(elements.trained);
  const double exact = static_cast<double>(width_of(types.exact)) * trained;
  const double rounded = types.values == types.exact ? 0 : static_cast<double>(width_of(types.values)) * trained;
  const double states = state_bytes(workload, elements);
  if (on_host)
    bytes.host = states + 2 * exact + rounded;
  else
    bytes.optimizer = states + (types.values == types.exact ? 0 : exact);
}

MemoryBytes memory_of_rank(const Cluster& cluster, const Plan& plan, int rank) {
  const auto value = static_cast<double>(width_of(plan.workload.types.values));
  const ParameterElements elements = parameter_elements(plan.workload.spec, plan, plan.mesh.at(rank));
  const ActivationPeak& peak = plan.activation_bytes_by_rank[rank];
  const MemoryBytes device = device_bytes(cluster, plan.layout);
  MemoryBytes bytes{
      .weights = value * static_cast<double>(elements.values + elements.most_gathered),
      .gradients = plan.workload.software.gradient_bytes * static_cast<double>(elements.gradients + elements.most_open),
      .activations = static_cast<double>(peak.kept),
      .communication = static_cast<double>(peak.total - peak.in_use) + device.communication,
      .workspace = static_cast<double>(peak.in_use - peak.kept) + device.workspace};
  add_states(bytes, plan.workload, elements, plan.layout.states_on_host);
  return bytes;
}

}  // namespace

std::vector<MemoryBytes> memory_by_rank(const Cluster& cluster, const Plan& plan) {
  std::map<std::tuple<int, int, int>, MemoryBytes> of;  // by stage, t and shard: replicas of them are equal
  std::vector<MemoryBytes> ranks;
  for (int rank = 0; rank < plan.mesh.size(); ++rank) {
    const Coordinates at = plan.mesh.at(rank);
    const auto [entry, is_new] = of.try_emplace({at.p, at.t, plan.mesh.shared(at.d, plan.layout.sharding.degree).part});
    if (is_new) entry->second = memory_of_rank(cluster, plan, rank);
    ranks.push_back(entry->second);
  }
  return ranks;
}

}  // namespace shardline
