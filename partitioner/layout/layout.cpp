#include "partitioner/layout/layout.h"

#include <functional>
#include <numeric>

#include "core/error.h"

namespace shardline {

const char* to_string(Recomputed recomputed) {
  return recomputed == Recomputed::nothing ? "none" : recomputed == Recomputed::core ? "selective" : "each";
}

const char* to_string(Offloaded offloaded) {
  return offloaded == Offloaded::nothing ? "none" : offloaded == Offloaded::inputs ? "checkpointed" : "all";
}

WorkShape Layout::work_shape(const Job& job) const {
  return {.sequences = microbatch_size,
          .length = job.sequence_length,
          .tensor = tensor,
          .sequence_parallel = sequence_parallel && tensor > 1,
          .fused = job.software.fused,
          .value_bytes = value_bytes(job.precision),
          .border_bytes = job.fp32_borders ? 4 : value_bytes(job.precision)};
}

ScheduleChoice Layout::schedule_choice() const {
  return {.pipeline = schedule,
          .stages = pipeline,
          .microbatches = microbatches,
          .chunks_per_stage = chunks_per_stage,
          .active_microbatches = active_microbatches};
}

std::map<std::string, std::string> layout_conditions(const Job& job, const Layout& layout) {
  return {{"tensor_parallel_degree", std::to_string(layout.tensor)},
          {"microbatch_size", std::to_string(layout.microbatch_size)},
          {"optimize", layout.sequence_parallel ? "memory" : "speed"},
          {"sequence_length", std::to_string(job.sequence_length)}};
}

bool is_measured(const Job& job, const Layout& layout) {
  return job.profile && mismatch(*job.profile, layout_conditions(job, layout)).empty();
}

std::string to_string(const Layout& layout) {
  std::string text = cat("D=", layout.replicas, " P=", layout.pipeline, " T=", layout.tensor, " ", layout.placement,
                         ", ", layout.microbatches, " x ", layout.microbatch_size);
  if (layout.pipeline > 1) text += " " + layout.schedule;
  if (layout.chunks_per_stage > 1) text += cat(" v=", layout.chunks_per_stage);
  text += cat(", recompute ", to_string(layout.recomputed));
  if (layout.sequence_parallel) text += ", sequence parallel";
  if (layout.sharded > 0) text += cat(", ZeRO-", layout.sharded);
  if (layout.sharded > 0 && layout.shards() != layout.replicas) text += cat(" over ", layout.shards());
  if (layout.offload != Offloaded::nothing) text += cat(", offload ", to_string(layout.offload));
  return text;
}

namespace {

int64_t local_elements(const ParamSpec& param, int tensor) {
  const auto shape = param.local_shape(0, tensor);
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

}  // namespace

int64_t local_parameters(const LayerSpec& layer, int tensor) {
  int64_t elements = 0;
  for (const auto& param : layer.params) elements += local_elements(param, tensor);
  return elements;
}

int64_t shared_parameters(const Job& job, const Layout& layout, const LayerSpec& layer) {
  if (layout.shards() == 1) return 0;
  int64_t elements = 0;
  for (const auto& param : layer.params)
    if (layout.sharded < 3 || param.numel() >= job.whole_below) elements += local_elements(param, layout.tensor);
  return elements;
}

int64_t parameters_of_own_rows(const LayerSpec& layer) {
  int64_t elements = 0;
  for (const auto& param : layer.params)
    for (const auto& unit : layer.units)
      if (!unit.split && param.partial_over_t && param.name.starts_with(unit.name + ".")) elements += param.numel();
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
