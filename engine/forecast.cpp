#include "engine/forecast.h"

#include <map>
#include <numeric>

#include "core/error.h"
#include "engine/layout_settings.h"
#include "engine/observe/format.h"
#include "models/hf_writer.h"
#include "partitioner/planned_layout.h"
#include "pipeline/schedule_svg.h"

namespace shardline {
namespace {

constexpr double kMomentBytes = 8;    // AdamW's two, fp32
constexpr double kMostBoxes = 10000;  // of a picture that browsers still like

// Every use of a tied parameter has a gradient of its own.
int64_t gradient_elements(const ModelSpec& spec, const Plan& plan, const Coordinates& at) {
  int64_t elements = 0;
  for (size_t layer = 0; layer < spec.layers.size(); ++layer) {
    if (plan.stage_of_layer[layer] != at.p) continue;
    for (const auto& param : spec.layers[layer].params) {
      const auto shape = param.local_shape(at.t, plan.mesh.t());
      if (param.trainable) elements += std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    }
  }
  return elements;
}

// Weights, gradients, states and activations are this engine's own, for this rank; what stands beside them is the
// planner's estimate for its stage.
MemoryBytes memory_of_rank(const Config& config, const PlannerCase& planned, const Plan& plan, int rank,
                           const MemoryBytes& of_stage) {
  const Coordinates at = plan.mesh.at(rank);
  const bool wide = config.runtime.dtype == "float64";
  const auto stored = static_cast<double>(plan.parameters_by_rank[static_cast<size_t>(rank)]);
  const double value = wide ? 8 : value_bytes(planned.job.precision);
  const double master = planned.job.precision == Precision::fp32 ? 0 : 4;
  MemoryBytes bytes = of_stage;
  bytes.weights = stored * value;
  bytes.gradients = static_cast<double>(gradient_elements(planned.job.spec, plan, at)) *
                    (wide ? 8 : planned.job.software.gradient_bytes);
  bytes.optimizer = stored * ((wide ? 2 : 1) * kMomentBytes + master);
  bytes.activations = static_cast<double>(plan.activation_bytes_by_rank[static_cast<size_t>(rank)]);
  return bytes;
}

std::vector<MemoryBytes> memory_of_ranks(const Config& config, const PlannerCase& planned, const Plan& plan,
                                         const std::vector<StageMemory>& stages) {
  std::map<std::pair<int, int>, MemoryBytes> of;  // by stage and t: replicas are equal
  std::vector<MemoryBytes> memory;
  for (int rank = 0; rank < plan.mesh.size(); ++rank) {
    const Coordinates at = plan.mesh.at(rank);
    const auto [entry, is_new] = of.try_emplace({at.p, at.t});
    if (is_new) entry->second = memory_of_rank(config, planned, plan, rank, stages[static_cast<size_t>(at.p)].bytes);
    memory.push_back(entry->second);
  }
  return memory;
}

// Of the rank with most on every stage.
MemoryFit fit_of(const PlannerCase& planned, const Plan& plan, const std::vector<MemoryBytes>& memory) {
  std::vector<StageMemory> stages(static_cast<size_t>(plan.mesh.p()));
  for (int rank = 0; rank < plan.mesh.size(); ++rank) {
    auto& most = stages[static_cast<size_t>(plan.mesh.at(rank).p)].bytes;
    const auto& bytes = memory[static_cast<size_t>(rank)];
    if (bytes.total() > most.total()) most = bytes;
  }
  return memory_fit(planned.job, stages);
}

void add_totals(const Config& config, Forecast& forecast) {
  if (config.training.max_steps < 0) return;
  const Cluster& cluster = forecast.cluster;
  const int nodes = (forecast.layout.world() + cluster.devices_per_node - 1) / cluster.devices_per_node;
  forecast.total_steps = config.training.max_steps;
  forecast.total_seconds = static_cast<double>(forecast.total_steps) * forecast.step.seconds;
  forecast.node_hours = nodes * forecast.total_seconds / 3600;
  if (cluster.hourly_price) forecast.cost = forecast.node_hours * *cluster.hourly_price;
  if (cluster.spot_price) forecast.spot_cost = forecast.node_hours * *cluster.spot_price;
}

}  // namespace

Forecast make_forecast(const Config& config, const PlannerCase& planned, const Plan& plan) {
  const auto described =
      describe_layout(planned.job, planned.layout, plan.train, planned.spans, planned.prices, plan.chunk_of_layer);
  Forecast forecast{.cluster = planned.job.cluster,
                    .precision = planned.job.precision,
                    .layout = planned.layout,
                    .step = described.step,
                    .memory = memory_of_ranks(config, planned, plan, described.memory),
                    .parameters = planned.job.spec.parameter_count(),
                    .flops_per_step = model_flops(planned.job)};
  forecast.fit = fit_of(planned, plan, forecast.memory);
  if (!forecast.fit.fits) forecast.advice = advice_to_fit(planned.job, planned.layout);
  if (forecast.advice)
    forecast.advice_settings = settings_of(config, forecast.advice->layout, planned.layout, planned.job.global_batch);
  const auto dtype = config.runtime.dtype == "float64" ? at::kDouble : at::kFloat;
  forecast.disk_bytes = static_cast<double>(HfWriter(config.output_dir, planned.job.spec, dtype).total_bytes());
  add_totals(config, forecast);
  return forecast;
}

std::string forecast_picture(const PlannerCase& planned, const Plan& plan) {
  std::vector<LayerPrice> chunks(static_cast<size_t>(plan.train.chunks()));
  for (size_t layer = 0; layer < plan.chunk_of_layer.size(); ++layer)
    chunks[static_cast<size_t>(plan.chunk_of_layer[layer])] += planned.prices[layer];
  const auto simulation = simulate(plan.train, kUnboundedSends, [&](int, const Instruction& instruction) {
    const auto& chunk = chunks[static_cast<size_t>(instruction.chunk)];
    return instruction.op == Op::forward           ? chunk.forward
           : instruction.op == Op::backward_input  ? chunk.backward_input
           : instruction.op == Op::backward_weight ? chunk.backward_weight
                                                   : 0;
  });
  auto rows = simulated_rows(plan.train, simulation);
  size_t boxes = 0;
  for (const auto& row : rows) boxes += row.boxes.size();
  const double whole = simulation.makespan();
  const double span = whole * std::min(1.0, kMostBoxes / static_cast<double>(boxes));
  for (auto& row : rows) std::erase_if(row.boxes, [&](const PictureBox& box) { return box.end > span; });
  return interval_picture(
      cat(plan.train.name, ", ", span < whole ? "the beginning of " : "", "one replica's step, ", format_duration(span),
          span < whole ? " of " + format_duration(whole) : "", ", at the predicted costs of its layers"),
      rows, span);
}

}  // namespace shardline
