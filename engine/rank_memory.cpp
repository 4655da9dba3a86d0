#include "engine/rank_memory.h"

#include <map>

#include "engine/config/optimizer_rules.h"
#include "engine/config/precision_rules.h"
#include "engine/parameter_memory.h"

namespace shardline {
namespace {

// States as long as what they update have its padding too.
double state_bytes(const Config& config, const ParameterElements& elements) {
  const OptimizerOptions options = optimizer_options(config.training);
  const int64_t width = width_of(number_types(config).exact);
  int64_t bytes = 0, parts = 0;
  for (const auto& [spec, part] : elements.trained_parts) {
    bytes += optimizer_state_bytes(options, *spec, part, width);
    parts += part;
  }
  if (options.kind == OptimizerOptions::Kind::adafactor) return static_cast<double>(bytes);
  return static_cast<double>(bytes + optimizer_state_bytes(options, {}, elements.trained - parts, width));
}

MemoryBytes memory_of_rank(const Config& config, const PlannerCase& planned, const Plan& plan, int rank) {
  const NumberTypes types = number_types(config, planned.job.precision);
  const auto value = static_cast<double>(width_of(types.values));
  const double master = types.values == types.exact ? 0 : static_cast<double>(width_of(types.exact));
  const ParameterElements elements = parameter_elements(planned.job.spec, plan, plan.mesh.at(rank));
  const ActivationPeak& peak = plan.activation_bytes_by_rank[static_cast<size_t>(rank)];
  const MemoryBytes device = device_bytes(planned.job, planned.layout);
  return {
      .weights = value * static_cast<double>(elements.values + elements.most_gathered),
      .gradients = planned.job.software.gradient_bytes * static_cast<double>(elements.gradients + elements.most_open),
      .optimizer = state_bytes(config, elements) + master * static_cast<double>(elements.trained),
      .activations = static_cast<double>(peak.kept),
      .communication = static_cast<double>(peak.total - peak.in_use) + device.communication,
      .workspace = static_cast<double>(peak.in_use - peak.kept) + device.workspace};
}

}  // namespace

std::vector<MemoryBytes> memory_by_rank(const Config& config, const PlannerCase& planned, const Plan& plan) {
  std::map<std::tuple<int, int, int>, MemoryBytes> of;  // by stage, t and shard: replicas of them are equal
  std::vector<MemoryBytes> ranks;
  for (int rank = 0; rank < plan.mesh.size(); ++rank) {
    const Coordinates at = plan.mesh.at(rank);
    const auto [entry, is_new] = of.try_emplace({at.p, at.t, plan.mesh.shared(at.d, plan.sharding.degree).part});
    if (is_new) entry->second = memory_of_rank(config, planned, plan, rank);
    ranks.push_back(entry->second);
  }
  return ranks;
}

}  // namespace shardline
