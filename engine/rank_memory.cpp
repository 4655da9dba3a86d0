#include "engine/rank_memory.h"

#include <numeric>
#include <set>
namespace shardline {
namespace {

int64_t numel_of(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

struct Stored {
  int64_t elements = 0, trained = 0;
  int64_t gradients = 0;  // each use of a tied parameter makes one of its own
};

Stored stored_on(const ModelSpec& spec, const Plan& plan, Coordinates at) {
  Stored stored;
  std::set<std::string> seen;  // a tied parameter is stored once on a rank
  for (size_t layer = 0; layer < spec.layers.size(); ++layer)
    for (const auto& param : spec.layers[layer].params) {
      if (plan.stage_of_layer[layer] != at.p) continue;
      const int64_t elements = numel_of(param.local_shape(at.t, plan.sizes.tensor));
      if (param.trainable) stored.gradients += elements;
      if (!seen.insert(param.tied_to.empty() ? spec.layers[layer].full_name(param) : param.tied_to).second) continue;
      stored.elements += elements;
      if (param.trainable) stored.trained += elements;
    }
  return stored;
}

}  // namespace

std::vector<MemoryBytes> memory_by_rank(const Config& config, const ModelSpec& spec, const Plan& plan) {
  const double element = config.runtime.dtype == "float64" ? 8 : 4;
  std::vector<MemoryBytes> ranks;
  for (int rank = 0; rank < plan.mesh.size(); ++rank) {
    const Coordinates at = plan.mesh.at(rank);
    const Stored stored = stored_on(spec, plan, at);
    const ActivationPeak& peak = plan.activation_bytes_by_rank[static_cast<size_t>(rank)];
    ranks.push_back({.weights = element * static_cast<double>(stored.elements),
                     .gradients = element * static_cast<double>(stored.gradients),
                     .optimizer = 2 * element * static_cast<double>(stored.trained),
                     .activations = static_cast<double>(peak.kept),
                     .communication = static_cast<double>(peak.total - peak.in_use),
                     .workspace = static_cast<double>(peak.in_use - peak.kept)});
  }
  return ranks;
}

}  // namespace shardline
