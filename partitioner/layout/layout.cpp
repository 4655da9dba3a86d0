#include "partitioner/layout/layout.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "core/error.h"

namespace shardline {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(OffloadOptions, enabled, horizon, everything)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Sharding, level, degree, whole_below, most_gathered, most_reduced,
                                   hierarchical_gather)

// In JSON, a strategy is its name.
static void to_json(nlohmann::json& json, const Recompute& recompute) {
  json = to_string(recompute);
}
static void from_json(const nlohmann::json& json, Recompute& recompute) {
  recompute = recompute_strategy(json.get<std::string>()).value();
}

// Passes every field of a layout to `visit`; the structured binding fails to compile if one is missing.
template <class AnyLayout, class Visit>
static void visit_fields(AnyLayout& layout, const Visit& visit) {
  auto& [tensor, pipeline, replicas, placement, microbatch_size, microbatches, accumulation_steps, loader_batches,
         eval_batch, schedule, chunks_per_stage, active_microbatches, recompute, offload, sequence_parallel, sharding,
         states_on_host, on_accelerators] = layout;
  visit("tensor", tensor);
  visit("pipeline", pipeline);
  visit("replicas", replicas);
  visit("placement", placement);
  visit("microbatch_size", microbatch_size);
  visit("microbatches", microbatches);
  visit("accumulation_steps", accumulation_steps);
  visit("loader_batches", loader_batches);
  visit("eval_batch", eval_batch);
  visit("schedule", schedule);
  visit("chunks_per_stage", chunks_per_stage);
  visit("active_microbatches", active_microbatches);
  visit("recompute", recompute);
  visit("offload", offload);
  visit("sequence_parallel", sequence_parallel);
  visit("sharding", sharding);
  visit("states_on_host", states_on_host);
  visit("on_accelerators", on_accelerators);
}

void to_json(nlohmann::json& json, const Layout& layout) {
  visit_fields(layout, [&](const char* name, const auto& field) { json[name] = field; });
}

void from_json(const nlohmann::json& json, Layout& layout) {
  visit_fields(layout, [&](const char* name, auto& field) { json.at(name).get_to(field); });
}

std::vector<Recompute> recompute_blocks(const ModelSpec& spec, Recompute::What what) {
  std::vector<Recompute> by_layer;
  if (what != Recompute::What::nothing)
    for (const auto& layer : spec.layers) by_layer.push_back(layer.is_block ? Recompute{what} : Recompute{});
  return by_layer;
}

std::string recompute_text(const Layout& layout) {
  std::set<std::string> strategies;
  for (const auto& recompute : layout.recompute)
    if (recompute.what != Recompute::What::nothing) strategies.insert(to_string(recompute));
  std::string text;
  for (const auto& strategy : strategies) text += (text.empty() ? "" : ", ") + strategy;
  return text.empty() ? "none" : text;
}

const char* scope_text(const OffloadOptions& offload) {
  return !offload.enabled ? "none" : offload.everything ? "all" : "checkpointed";
}

NumberTypes types_of(Precision precision) {
  const at::ScalarType values = precision == Precision::bf16   ? at::kBFloat16
                                : precision == Precision::fp16 ? at::kHalf
                                                               : at::kFloat;
  return {.values = values, .borders = values, .exact = at::kFloat};
}

Precision Workload::precision() const {
  return types.values == at::kBFloat16 ? Precision::bf16
         : types.values == at::kHalf   ? Precision::fp16
                                       : Precision::fp32;
}

WorkShape Layout::work_shape(const Workload& workload) const {
  return {.sequences = microbatch_size,
          .length = workload.sequence_length,
          .tensor = tensor,
          .sequence_parallel = sequence_parallel && tensor > 1,
          .fused = workload.software.fused,
          .value_bytes = width_of(workload.types.values),
          .border_bytes = width_of(workload.types.borders)};
}

ScheduleChoice Layout::schedule_choice() const {
  return {.pipeline = schedule,
          .stages = pipeline,
          .microbatches = microbatches,
          .chunks_per_stage = chunks_per_stage,
          .active_microbatches = active_microbatches};
}

Schedule training_schedule(const Layout& layout) {
  // Gradient accumulation only adds microbatches: the pipeline does not drain between its steps.
  const bool scattered = layout.sharded() >= Sharding::Level::gradients;
  return with_reductions(make_schedule(layout.schedule_choice()), scattered);
}

int first_backward_chunk(const ModelSpec& spec, const std::vector<int>& chunk_of_layer) {
  return chunk_of_layer.at(spec.first_with_backward());
}

std::map<std::string, std::string> layout_conditions(const Workload& workload, const Layout& layout) {
  return {{"tensor_parallel_degree", std::to_string(layout.tensor)},
          {"microbatch_size", std::to_string(layout.microbatch_size)},
          {"optimize", layout.sequence_parallel ? "memory" : "speed"},
          {"sequence_length", std::to_string(workload.sequence_length)}};
}

bool is_measured(const Workload& workload, const Profile* profile, const Layout& layout) {
  return profile && mismatch(*profile, layout_conditions(workload, layout)).empty();
}

std::string to_string(const Layout& layout) {
  std::string text = cat("D=", layout.replicas, " P=", layout.pipeline, " T=", layout.tensor, " ", layout.placement,
                         ", ", layout.microbatches, " x ", layout.microbatch_size);
  if (layout.pipeline > 1) text += cat(" ", layout.schedule);
  if (layout.chunks_per_stage > 1) text += cat(" v=", layout.chunks_per_stage);
  text += cat(", recompute ", recompute_text(layout));
  if (layout.sequence_parallel) text += ", sequence parallel";
  if (layout.sharded() != Sharding::Level::none) {
    text += cat(", ZeRO-", static_cast<int>(layout.sharding.level));
    if (layout.sharding.degree != layout.replicas) text += cat(" over ", layout.sharding.degree);
  }
  if (layout.offload.enabled) text += cat(", offload ", scope_text(layout.offload));
  return text;
}

bool alike(const LayerSpec& a, const LayerSpec& b) {
  const auto same_parameter = [](const ParamSpec& one, const ParamSpec& other) {
    return one.shape == other.shape && one.split_dim == other.split_dim && one.trainable == other.trainable &&
           one.tied_to.empty() == other.tied_to.empty();
  };
  return a.is_block && b.is_block && a.has_backward == b.has_backward && a.flops_per_token == b.flops_per_token &&
         a.code == b.code && std::ranges::equal(a.params, b.params, same_parameter) &&
         std::ranges::equal(a.output, b.output, {}, &BorderTensor::shape, &BorderTensor::shape);
}

int64_t local_elements(const ParamSpec& param, int tensor) {
  const auto shape = param.local_shape(0, tensor);
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

static bool is_counted(const ParamSpec& param, Counted counted) {
  return counted == Counted::all || param.trainable;
}

int64_t local_parameters(const LayerSpec& layer, int tensor, Counted counted) {
  int64_t elements = 0;
  for (const auto& param : layer.params)
    if (is_counted(param, counted)) elements += local_elements(param, tensor);
  return elements;
}

int64_t shared_parameters(const Layout& layout, const LayerSpec& layer, Counted counted) {
  if (layout.sharding.degree == 1) return 0;
  const int64_t whole_below = layout.sharded() < Sharding::Level::weights ? 0 : layout.sharding.whole_below;
  int64_t elements = 0;
  for (const auto& param : layer.params)
    if (is_counted(param, counted) && param.numel() >= whole_below) elements += local_elements(param, layout.tensor);
  return elements;
}

int64_t parameters_of_own_rows(const LayerSpec& layer) {
  int64_t elements = 0;
  for (const auto& param : layer.params)
    for (const auto& unit : layer.units)
      if (param.trainable && !unit.split && param.partial_over_t && param.name.starts_with(unit.name + "."))
        elements += param.numel();
  return elements;
}

int64_t border_bytes(const LayerSpec& layer, const WorkShape& shape) {
  int64_t bytes = 0;
  for (const auto& tensor : layer.output) {
    int64_t elements = 1;
    for (const int64_t size : tensor.shape) elements *= size == BorderTensor::kRows ? shape.rows() : size;
    bytes += elements * shape.border_bytes;
  }
  return bytes;
}

}  // namespace shardline
