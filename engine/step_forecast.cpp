#include "engine/step_forecast.h"

#include "partitioner/local_cluster.h"

namespace shardline {
namespace {

Recomputed recomputed(const Recompute& recompute) {
  switch (recompute.what) {
    case Recompute::What::nothing:
      return Recomputed::nothing;
    case Recompute::What::attention:
      return Recomputed::core;
    case Recompute::What::layers:
      return Recomputed::blocks;
  }
  return Recomputed::nothing;
}

}  // namespace

Layout layout_of(const Plan& plan) {
  return {.tensor = plan.mesh.t(),
          .pipeline = plan.mesh.p(),
          .replicas = plan.mesh.d(),
          .placement = plan.mesh.placement(),
          .microbatch_size = static_cast<int>(plan.sizes.microbatch_size),
          .microbatches = plan.train.microbatches,
          .sequence_parallel = plan.sequence_parallel};
}

Job job_of(const Config& config, const Plan& plan, const ModelSpec& spec, std::shared_ptr<const Profile> profile) {
  return {.cluster = local_cluster(*profile, plan.mesh.size()),
          .spec = spec,
          .sequence_length = config.data.sequence_length,
          .global_batch = plan.sizes.global_batch,
          .precision = Precision::fp32,
          .software = {.gradient_bytes = config.runtime.dtype == "float64" ? 8 : 4},
          .profile = std::move(profile)};
}

StepEstimate forecast_step(const Config& config, const Plan& plan, const ModelSpec& spec,
                           std::shared_ptr<const Profile> profile) {
  const Job job = job_of(config, plan, spec, std::move(profile));
  Layout layout = layout_of(plan);
  const auto spans = mesh_spans(layout.mesh(), job.cluster.devices_per_node, 1);
  const Pricing pricing(job.cluster, job.precision, job.software.gradient_bytes, job.software.separate_addition,
                        job.profile.get());
  std::vector<LayerPrice> prices;
  for (size_t layer = 0; layer < spec.layers.size(); ++layer) {
    layout.recomputed = recomputed(plan.activations.recompute[layer]);
    prices.push_back(layer_price(job, layout, pricing, spans, spec.layers[layer]));
  }
  return estimate_step(job, layout, plan.train, plan.chunk_of_layer, prices, spans);
}

}  // namespace shardline
