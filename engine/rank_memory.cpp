#include "engine/rank_memory.h"

#include <map>

#include "engine/parameter_memory.h"

namespace shardline {
namespace {

MemoryBytes memory_of_rank(const Config& config, const PlannerCase& planned, const Plan& plan, int rank) {
  const bool wide = config.runtime.dtype == "float64";
  const double value = wide ? 8 : value_bytes(planned.job.precision);
  const double moments = wide ? 16 : 8, master = planned.job.precision == Precision::fp32 ? 0 : 4;
  const ParameterElements elements = parameter_elements(planned.job.spec, plan, plan.mesh.at(rank));
  const ActivationPeak& peak = plan.activation_bytes_by_rank[static_cast<size_t>(rank)];
  const MemoryBytes device = device_bytes(planned.job, planned.layout);
  return {
      .weights = value * static_cast<double>(elements.values + elements.most_gathered),
      .gradients = planned.job.software.gradient_bytes * static_cast<double>(elements.gradients + elements.most_open),
      .optimizer = (moments + master) * static_cast<double>(elements.trained),
      .activations = static_cast<double>(peak.kept),
      .communication = static_cast<double>(peak.total - peak.in_use) + device.communication,
      .workspace = static_cast<double>(peak.in_use - peak.kept) + device.workspace};
}

}  // namespace

std::vector<MemoryBytes> memory_by_rank(const Config& config, const PlannerCase& planned, const Plan& plan) {
  std::map<std::pair<int, int>, MemoryBytes> of;  // by stage and t: replicas are equal
  std::vector<MemoryBytes> ranks;
  for (int rank = 0; rank < plan.mesh.size(); ++rank) {
    const Coordinates at = plan.mesh.at(rank);
    const auto [entry, is_new] = of.try_emplace({at.p, at.t});
    if (is_new) entry->second = memory_of_rank(config, planned, plan, rank);
    ranks.push_back(entry->second);
  }
  return ranks;
}

}  // namespace shardline
