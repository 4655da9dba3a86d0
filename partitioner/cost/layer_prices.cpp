#include "partitioner/cost/layer_prices.h"

#include <algorithm>

#include "core/error.h"
#include "partitioner/memory/layer_bytes.h"

namespace shardline {
namespace {

struct Seconds {
  double forward = 0, backward_input = 0, backward_weight = 0, core_forward = 0;
  double& of(Phase phase) {
    return phase == Phase::forward ? forward : phase == Phase::backward_input ? backward_input : backward_weight;
  }
};

LayerWork work_of(const LayerSpec& layer, const WorkShape& shape) {
  SL_ASSERT(layer.work, "layer ", layer.name, " does not state its work");
  return layer.work(shape);
}

Seconds seconds_of(const LayerWork& work, const Pricing& pricing, const GroupSpan& tensor) {
  Seconds seconds;
  for (const auto& product : work.products) {
    const double time = pricing.product(product);
    seconds.of(product.phase) += time;
    if (product.core && product.phase == Phase::forward) seconds.core_forward += time;
  }
  for (const auto& sweep : work.sweeps) {
    const double time = pricing.sweep(sweep.bytes, sweep.kernels);
    seconds.of(sweep.phase) += time;
    if (sweep.core && sweep.phase == Phase::forward) seconds.core_forward += time;
  }
  for (const auto& collective : work.collectives) {
    seconds.of(collective.phase) += pricing.collective(collective.kind, collective.bytes, tensor);
  }
  return seconds;
}

// The communication over T that products hide if the weight gradient follows immediately: a linear gathers its input
// during the product of the input gradient, and sums the input gradient during the product of the weight gradient.
double hidden_seconds(const LayerWork& work, const Software& software, const Pricing& pricing,
                      const GroupSpan& tensor) {
  if (!software.overlap_tensor) return 0;
  double input_products = 0, weight_products = 0, gathers = 0, sums = 0;
  for (const auto& product : work.products) {
    if (product.phase == Phase::backward_input) input_products += pricing.product(product);
    if (product.phase == Phase::backward_weight) weight_products += pricing.product(product);
  }
  for (const auto& collective : work.collectives) {
    const bool gather = collective.kind == Collective::Kind::all_gather;
    const double seconds =
        pricing.hidden_share(collective.kind, tensor) * pricing.collective(collective.kind, collective.bytes, tensor);
    if (collective.phase == Phase::backward_weight && gather) gathers += seconds;
    if (collective.phase == Phase::backward_input && !gather) sums += seconds;
  }
  return std::min(gathers, input_products) + std::min(sums, weight_products);
}

LayerPrice told_price(const LayerWork& work, const Software& software, const Pricing& pricing,
                      const GroupSpan& tensor) {
  const Seconds seconds = seconds_of(work, pricing, tensor);
  return {.forward = seconds.forward,
          .backward_input = seconds.backward_input,
          .backward_weight = seconds.backward_weight,
          .joint_saving = hidden_seconds(work, software, pricing, tensor)};
}

LayerPrice measured_price(const LayerMeasurement& measured) {
  const double halves = measured.backward_input_seconds + measured.backward_weight_seconds;
  return {.forward = measured.forward_seconds,
          .backward_input = measured.backward_input_seconds,
          .backward_weight = measured.backward_weight_seconds,
          .joint_saving = halves - measured.backward_seconds};
}

double flops(const LayerWork& work) {
  double sum = 0;
  for (const auto& product : work.products) sum += product.flops();
  return sum;
}

// Bytes of memory traffic in AdamW for each element of a parameter: reading the gradient for the norm and for the
// update, reading and writing both moments and the fp32 weight, writing the weight.
double update_bytes(const Workload& workload) {
  const bool master = workload.precision() != Precision::fp32;
  return 2 * workload.software.gradient_bytes + 2 * workload.software.optimizer_bytes + 8 +
         (master ? width_of(workload.types.values) : 0) + workload.software.extra_update_bytes;
}

WorkShape whole_batch(const Workload& workload) {
  return {.sequences = workload.global_batch,
          .length = workload.sequence_length,
          .tensor = 1,
          .sequence_parallel = false,
          .fused = false};
}

}  // namespace

LayerPrice& LayerPrice::operator+=(const LayerPrice& other) {
  forward += other.forward;
  backward_input += other.backward_input;
  backward_weight += other.backward_weight;
  recomputed += other.recomputed;
  joint_saving += other.joint_saving;
  forward_moving += other.forward_moving;
  backward_moving += other.backward_moving;
  return *this;
}

Pricing pricing_for(const Workload& workload, const Machines& machines) {
  return Pricing(machines.cluster, workload.precision(), workload.software.gradient_bytes,
                 workload.software.separate_addition, machines.profile.get());
}

LayerPrice layer_price(const Workload& workload, const Layout& layout, const Pricing& pricing, const MeshSpans& spans,
                       size_t index) {
  const LayerSpec& layer = workload.spec.layers[index];
  const LayerWork work = work_of(layer, layout.work_shape(workload));
  const auto* measured =
      is_measured(workload, pricing.profile(), layout) ? find_layer(*pricing.profile(), layer) : nullptr;
  LayerPrice price = measured ? measured_price(*measured) : told_price(work, workload.software, pricing, spans.tensor);
  const double core =
      measured ? measured->recompute_core_seconds : seconds_of(work, pricing, spans.tensor).core_forward;
  if (const auto what = layout.recomputed(index); work.recomputable && what != Recompute::What::nothing)
    price.recomputed = what == Recompute::What::layers ? price.forward : core;
  price.backward_input += price.recomputed;

  // If gradients are sharded, each microbatch's gradients are reduced to their owners; sharded weights are gathered.
  if (layout.sharded() >= Sharding::Level::gradients) {
    using Kind = Collective::Kind;
    const double trained = shared_parameters(layout, layer, Counted::trained);
    const double values =
        layout.sharded() == Sharding::Level::weights ? shared_parameters(layout, layer, Counted::all) : 0;
    const double scatter =
        trained > 0 ? pricing.collective(Kind::reduce_scatter, trained * workload.software.gradient_bytes, spans.shards)
                    : 0;
    const double gather = values > 0 ? pricing.gathering(values * width_of(workload.types.values), spans.shards,
                                                         workload.software.gather_way)
                                     : 0;
    price.forward = std::max(price.forward, gather);
    if (layer.has_backward)
      price.backward_input = std::max(price.backward_input, gather + scatter - price.backward_weight);
  }
  if (!layout.offload.enabled) return price;
  if (const int64_t moved = moved_bytes(workload, layout, index, layer_bytes(workload, layout, 0, index)); moved > 0) {
    const double moving = pricing.to_host(moved);
    price.forward_moving = std::max(0.0, moving - price.forward);
    price.backward_moving = std::max(0.0, moving - price.backward_input);
  }
  return price;
}

double update_seconds(const Workload& workload, const Layout& layout, const Pricing& pricing, double elements) {
  const double all = elements * update_bytes(workload);
  if (!layout.states_on_host) return pricing.sweep(all);
  const double gradients = elements * workload.software.gradient_bytes,
               values = elements * width_of(workload.types.values);
  const double norm = pricing.sweep(gradients);  // on the device
  return norm + std::max({pricing.to_host(gradients), pricing.to_host(values), pricing.host_sweep(all - gradients)});
}

StepShares& StepShares::operator+=(const StepShares& other) {
  work += other.work;
  collectives += other.collectives;
  return *this;
}

StepShares step_shares(const Workload& workload, const Layout& layout, const Pricing& pricing, const MeshSpans& spans,
                       size_t index) {
  const LayerSpec& layer = workload.spec.layers[index];
  const LayerWork work = work_of(layer, layout.work_shape(workload));
  const auto of_microbatch = [&](const LayerWork& part) {
    const Seconds seconds = seconds_of(part, pricing, spans.tensor);
    const bool again = part.recomputable && layout.recomputed(index) == Recompute::What::layers;
    return (again ? 2 : 1) * seconds.forward + seconds.backward_input + seconds.backward_weight;
  };
  LayerWork alone = work, between = work;
  alone.collectives.clear();
  between.products.clear();
  between.sweeps.clear();
  const double elements = local_parameters(layer, layout.tensor, Counted::trained);
  const double of_own_rows = parameters_of_own_rows(layer);
  const auto reduced = [&](double count, const GroupSpan& ranks) {
    return count == 0
               ? 0
               : pricing.collective(Collective::Kind::all_reduce, count * workload.software.gradient_bytes, ranks);
  };
  return {layout.microbatches * of_microbatch(alone) + update_seconds(workload, layout, pricing, elements),
          layout.microbatches * of_microbatch(between) + reduced(of_own_rows, spans.holders) +
              reduced(elements - of_own_rows, spans.replicas)};
}

std::vector<LayerPrice> layer_prices(const Workload& workload, const Machines& machines, const Layout& layout,
                                     const MeshSpans& spans) {
  const Pricing pricing = pricing_for(workload, machines);
  std::vector<LayerPrice> prices;
  for (size_t i = 0; i < workload.spec.layers.size(); ++i) {
    const auto& layers = workload.spec.layers;
    const bool same = i > 0 && alike(layers[i], layers[i - 1]) && layout.recomputed(i) == layout.recomputed(i - 1);
    prices.push_back(same ? prices.back() : layer_price(workload, layout, pricing, spans, i));
  }
  return prices;
}

double model_flops(const Workload& workload) {
  double sum = 0;
  for (const auto& layer : workload.spec.layers) sum += flops(work_of(layer, whole_batch(workload)));
  return sum;
}

double hardware_flops(const Workload& workload, Recompute::What recomputed) {
  double sum = model_flops(workload);
  for (const auto& layer : workload.spec.layers) {
    const auto work = work_of(layer, whole_batch(workload));
    if (!work.recomputable || recomputed == Recompute::What::nothing) continue;
    for (const auto& product : work.products)
      if (product.phase == Phase::forward && (product.core || recomputed == Recompute::What::layers))
        sum += product.flops();
  }
  return sum;
}

}  // namespace shardline
