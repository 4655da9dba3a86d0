#include "engine/plan/forecast.h"

#include <algorithm>

#include "core/error.h"
#include "engine/checkpoint/contents.h"
#include "engine/checkpoint/snapshot.h"
#include "engine/config/config.h"
#include "engine/observe/format.h"
#include "engine/plan/assignment.h"
#include "models/files/hf_writer.h"
#include "partitioner/memory/rank_memory.h"
#include "partitioner/search/planned_layout.h"
#include "pipeline/schedule/pictures/schedule_svg.h"

namespace shardline {
namespace {

constexpr double kMostBoxes = 10000;  // in a picture that browsers still handle

MeshSpans spans_of(const Machines& machines, const Plan& plan) {
  return mesh_spans(plan.layout.mesh(), machines.cluster.devices_per_node, plan.layout.sharding.degree);
}

// Fits the rank with the most memory of each stage.
MemoryFit fit_of(const Machines& machines, const Plan& plan, const std::vector<MemoryBytes>& memory) {
  const Mesh mesh = plan.layout.mesh();
  std::vector<MemoryBytes> stages(mesh.p());
  for (int rank = 0; rank < mesh.size(); ++rank) {
    MemoryBytes& most = stages[mesh.at(rank).p];
    if (memory[rank].total() > most.total()) most = memory[rank];
  }
  return memory_fit(machines.cluster, stages);
}

void add_totals(const Config& config, int ranks, Forecast& forecast) {
  if (config.training.max_steps < 0) return;
  const Cluster& cluster = forecast.cluster;
  const int nodes = cluster.nodes_of(ranks);
  forecast.total_steps = config.training.max_steps;
  forecast.total_seconds = forecast.total_steps * forecast.step.seconds;
  forecast.node_hours = nodes * forecast.total_seconds / 3600;
  if (cluster.hourly_price) forecast.cost = forecast.node_hours * *cluster.hourly_price;
  if (cluster.spot_price) forecast.spot_cost = forecast.node_hours * *cluster.spot_price;
}

void add_snapshot(const Config& config, const ModelSpec& spec, int ranks, Forecast& forecast) {
  const int copies = config.training.save_on_each_node ? forecast.cluster.nodes_of(ranks) : 1;
  forecast.snapshot_bytes = 1.0 * checkpoint_bytes(config, spec) * copies / ranks;
  // What ranks send in a round, others receive.
  const double of_round = static_cast<double>(Snapshot::kBlocksOfRound * kBlockBytes);
  if (ranks > 1) forecast.exchange_bytes = 2 * std::min(forecast.snapshot_bytes, of_round);
}

}  // namespace

double Forecast::most_host_bytes() const {
  std::vector<double> by_node(cluster.nodes);
  for (size_t rank = 0; rank < memory.size(); ++rank)
    by_node[cluster.node_of(static_cast<int>(rank))] += memory[rank].host;
  return *std::max_element(by_node.begin(), by_node.end());
}

StepEstimate forecast_step(const Machines& machines, const Plan& plan) {
  const auto spans = spans_of(machines, plan);
  const auto prices = layer_prices(plan.workload, machines, plan.layout, spans);
  return estimate_step(plan.workload, machines, plan.layout, plan.train, plan.chunk_of_layer, prices, spans);
}

Forecast make_forecast(const Config& config, const Machines& machines, const Plan& plan) {
  Forecast forecast{.cluster = machines.cluster,
                    .precision = plan.workload.precision(),
                    .step = forecast_step(machines, plan),
                    .memory = memory_by_rank(placed_layers(plan)),
                    .parameters = plan.workload.spec.parameter_count(),
                    .flops_per_step = model_flops(plan.workload)};
  forecast.fit = fit_of(machines, plan, forecast.memory);
  const auto chunk_of_layer = [&](const Layout& layout) {
    return assign_layers(config, {plan.workload, layout}, machines);
  };
  if (!forecast.fit.fits) forecast.advice = advice_to_fit(plan.workload, machines.cluster, plan.layout, chunk_of_layer);
  if (forecast.advice)
    forecast.advice_settings = settings_between(
        config, with_layout(config, plan.layout, forecast.advice->layout, plan.workload.precision(), machines.cluster));
  const HfWriter model(config.output_dir, plan.workload.spec, plan.workload.types.exact);
  forecast.disk_bytes = model.total_bytes();
  const int ranks = plan.layout.world();
  add_snapshot(config, plan.workload.spec, ranks, forecast);
  add_totals(config, ranks, forecast);
  return forecast;
}

std::string forecast_picture(const Machines& machines, const Plan& plan) {
  const auto prices = layer_prices(plan.workload, machines, plan.layout, spans_of(machines, plan));
  std::vector<LayerPrice> chunks(plan.train.chunks());
  for (size_t layer = 0; layer < plan.chunk_of_layer.size(); ++layer)
    chunks[plan.chunk_of_layer[layer]] += prices[layer];
  const auto simulation = simulate(plan.train, kUnboundedSends, [&](int, const Instruction& instruction) {
    const auto& chunk = chunks[instruction.chunk];
    return instruction.op == Op::forward           ? chunk.forward
           : instruction.op == Op::backward_input  ? chunk.backward_input
           : instruction.op == Op::backward_weight ? chunk.backward_weight
                                                   : 0;
  });
  auto rows = simulated_rows(plan.train, simulation);
  size_t boxes = 0;
  for (const auto& row : rows) boxes += row.boxes.size();
  const double whole = simulation.makespan();
  const double span = whole * std::min(1.0, kMostBoxes / boxes);
  for (auto& row : rows) std::erase_if(row.boxes, [&](const PictureBox& box) { return box.end > span; });
  return interval_picture(
      cat(plan.train.name, ", ", span < whole ? "the beginning of " : "", "one replica's step, ", format_duration(span),
          span < whole ? " of " + format_duration(whole) : "", ", at the predicted costs of its layers"),
      rows, span);
}

}  // namespace shardline
