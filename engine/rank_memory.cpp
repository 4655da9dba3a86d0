#include "engine/rank_memory.h"

#include <map>
#include <numeric>
#include <set>

#include "engine/config/optimizer_rules.h"

namespace shardline {
namespace {

int64_t numel_of(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

struct Stored {
  int64_t elements = 0, trained = 0;
  int64_t gradients = 0;    // each use of a tied parameter makes one of its own
  int64_t state_bytes = 0;  // of the optimizer
};

Stored stored_on(const Config& config, const ModelSpec& spec, const Plan& plan, Coordinates at) {
  const OptimizerOptions optimizer = optimizer_options(config.training);
  const int64_t state_element = config.runtime.dtype == "float64" ? 8 : 4;
  Stored stored;
  std::set<std::string> seen;  // a tied parameter is stored once on a rank
  for (size_t layer = 0; layer < spec.layers.size(); ++layer)
    for (const auto& param : spec.layers[layer].params) {
      if (plan.stage_of_layer[layer] != at.p) continue;
      const int64_t elements = numel_of(param.local_shape(at.t, plan.sizes.tensor));
      if (param.trainable) stored.gradients += elements;
      if (!seen.insert(param.tied_to.empty() ? spec.layers[layer].full_name(param) : param.tied_to).second) continue;
      stored.elements += elements;
      if (!param.trainable) continue;
      stored.trained += elements;
      stored.state_bytes += optimizer_state_bytes(optimizer, param, elements, state_element);
    }
  return stored;
}

MemoryBytes memory_of_rank(const Config& config, const PlannerCase& planned, const Plan& plan, int rank) {
  const bool wide = config.runtime.dtype == "float64";
  const double value = wide ? 8 : value_bytes(planned.job.precision);
  const double master = planned.job.precision == Precision::fp32 ? 0 : 4;
  const Stored stored = stored_on(config, planned.job.spec, plan, plan.mesh.at(rank));
  const ActivationPeak& peak = plan.activation_bytes_by_rank[static_cast<size_t>(rank)];
  const MemoryBytes device = device_bytes(planned.job, planned.layout);
  return {.weights = value * static_cast<double>(stored.elements),
          .gradients = planned.job.software.gradient_bytes * static_cast<double>(stored.gradients),
          .optimizer = static_cast<double>(stored.state_bytes) + master * static_cast<double>(stored.trained),
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
