#include "partitioner/search/planned_layout.h"

#include <algorithm>

#include "core/error.h"
#include "partitioner/cut/assign.h"
#include "partitioner/cut/partition.h"

namespace shardline {
namespace {

// By chunk, the microbatches that it keeps while its stage keeps most.
std::vector<double> kept_counts(const Schedule& schedule) {
  std::vector<double> counts(schedule.stage_of_chunk.size());
  for (const auto& list : schedule.instructions) {
    std::vector<int> now(counts.size()), at_peak(counts.size());
    int kept = 0, peak = 0;
    for (const auto& instruction : list) {
      auto& count = now[instruction.chunk];
      if (instruction.op == Op::backward_input) --count, --kept;
      if (instruction.op != Op::forward) continue;
      ++count;
      if (++kept <= peak) continue;
      peak = kept;
      at_peak = now;
    }
    for (size_t chunk = 0; chunk < counts.size(); ++chunk) counts[chunk] += at_peak[chunk];
  }
  return counts;
}

PartitionProblem partition_problem(const Job& job, const Layout& layout, const Schedule& schedule,
                                   const MeshSpans& spans, const std::vector<LayerPrice>& prices,
                                   double memory_weight) {
  const size_t layers = job.spec.layers.size();
  const Pricing pricing(job.cluster, job.precision, job.software.gradient_bytes, job.software.separate_addition,
                        job.profile.get());
  const bool near = layout.pipeline == 1 || spans.near[0][1];
  PartitionProblem problem{
      .stage_of_chunk = schedule.stage_of_chunk, .kept_counts = kept_counts(schedule), .memory_weight = memory_weight};
  // A chunk of its own for every layer: then kept_by_chunk is by layer.
  std::vector<int> alone(layers);
  for (size_t layer = 0; layer < layers; ++layer) alone[layer] = layer;
  problem.kept_bytes = kept_by_chunk(job, layout, alone, layers);
  for (size_t layer = 0; layer < layers; ++layer) {
    const auto& spec = job.spec.layers[layer];
    problem.seconds.push_back(prices[layer].whole());
    problem.state_bytes.push_back(state_bytes(job, layout, spec).total());
    if (layout.pipeline > 1)
      problem.cut_seconds.push_back(pricing.message(border_bytes(spec, layout.work_shape(job)), near));
  }
  return problem;
}

// Within the memory that states and kept activations may take; as it comes where that cannot be.
std::vector<int> cut(PartitionProblem problem, double room) {
  const auto stages =
      static_cast<size_t>(*std::max_element(problem.stage_of_chunk.begin(), problem.stage_of_chunk.end())) + 1;
  const auto free = partition(problem).chunk_of_layer;
  std::vector<double> bytes(stages);
  for (size_t layer = 0; layer < free.size(); ++layer) {
    const size_t chunk = free[layer];
    bytes[problem.stage_of_chunk[chunk]] +=
        problem.state_bytes[layer] + problem.kept_counts[chunk] * problem.kept_bytes[layer];
  }
  if (*std::max_element(bytes.begin(), bytes.end()) <= room) return free;
  problem.memory_caps.assign(stages, room);
  try {
    return partition(problem).chunk_of_layer;
  } catch (const ConfigError&) {
    return free;
  }
}

void check(const Job& job, const Layout& layout) {
  if (int64_t{layout.replicas} * layout.microbatches * layout.microbatch_size != job.global_batch)
    throw ConfigError(cat("the global batch is ", job.global_batch, ", but ", layout.replicas, " replicas x ",
                          layout.microbatches, " microbatches x ", layout.microbatch_size, " samples are ",
                          int64_t{layout.replicas} * layout.microbatches * layout.microbatch_size));
  if (layout.world() > job.cluster.devices())
    throw ConfigError(cat("D x P x T is ", layout.world(), ", but \"", job.cluster.name, "\" has ", job.cluster.nodes,
                          " nodes of ", job.cluster.devices_per_node, " devices: change nodes or a degree"));
  if (layout.sharded < 0 || layout.sharded > 3 || layout.replicas % layout.shards() != 0)
    throw ConfigError(cat("a sharding degree of ", layout.shards(), " must divide the ", layout.replicas, " replicas"));
}

}  // namespace

std::vector<int> cut_model(const Job& job, const Layout& layout, const Schedule& schedule, const MeshSpans& spans,
                           const std::vector<LayerPrice>& prices, double memory_weight) {
  check(job, layout);
  require_layers(job.spec.layers.size(), schedule.stage_of_chunk);
  const auto problem = partition_problem(job, layout, schedule, spans, prices, memory_weight);
  const auto chunks = cut(problem, job.cluster.memory_bytes);
  const auto memory = estimate_memory(job, layout, schedule, chunks);
  const auto fit = memory_fit(job, memory);
  if (fit.fits) return chunks;
  // What stands beside states and kept activations takes room, too.
  const auto& most = memory[fit.stage].bytes;
  const double room = job.cluster.memory_bytes - most.communication - most.workspace;
  return room > 0 ? cut(problem, room) : chunks;
}

PlannedLayout describe_layout(const Job& job, const Layout& layout, const Schedule& schedule, const MeshSpans& spans,
                              const std::vector<LayerPrice>& prices, const std::vector<int>& chunk_of_layer) {
  check(job, layout);
  PlannedLayout planned{.layout = layout, .stage_of_chunk = schedule.stage_of_chunk, .chunk_of_layer = chunk_of_layer};
  planned.memory = estimate_memory(job, layout, schedule, chunk_of_layer);
  planned.fit = memory_fit(job, planned.memory);
  planned.step = estimate_step(job, layout, schedule, chunk_of_layer, prices, spans);
  return planned;
}

PlannedLayout plan_layout(const Job& job, const Layout& layout, double memory_weight) {
  check(job, layout);
  const auto spans = mesh_spans(layout.mesh(), job.cluster.devices_per_node, layout.shards());
  const auto schedule = make_schedule(layout.schedule_choice());
  const auto prices = layer_prices(job, layout, spans);
  return describe_layout(job, layout, schedule, spans, prices,
                         cut_model(job, layout, schedule, spans, prices, memory_weight));
}

}  // namespace shardline
