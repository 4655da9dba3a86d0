#include "partitioner/memory/memory_estimate.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <ranges>

#include "core/error.h"
#include "partitioner/cut/assign.h"
#include "partitioner/memory/away.h"
#include "partitioner/memory/block_activations.h"

namespace shardline {
namespace {

constexpr double kMiB = 1024.0 * 1024, kGiB = 1024 * kMiB;
constexpr double kRuntimeBytes = 1 * kGiB;         // context, kernels and library workspaces on a GPU
constexpr double kCommunicatorBytes = 128 * kMiB;  // NCCL's channels of one communicator
constexpr double kFusedRows = 256;                 // tokens that the fused head has logits of at a time

// One microbatch in one layer.
struct LayerBytes {
  double kept = 0;       // from forward to backward
  double moved = 0;      // of it: waits on the host, where there is time
  double remade = 0;     // what recomputation makes before the backward
  double pairs = 0;      // input and output gradient of every linear, until the weight gradient
  double transient = 0;  // the two largest tensors of an op
};

double columns_of_head(const LayerWork& work) {
  return work.products.empty() ? 0 : static_cast<double>(work.products.front().n);
}

// What a layer states of itself: kept as the layout has it, kept without recomputation, pairs.
struct Stated {
  double kept = 0, all = 0, pairs = 0;
};
Stated stated_bytes(const Workload& workload, const Layout& layout, size_t index) {
  const auto& layer = workload.spec.layers[index];
  const WorkShape shape = layout.work_shape(workload);
  KeptCase at{.tokens = shape.tokens(),
              .rows = shape.rows(),
              .t = 0,
              .t_degree = layout.tensor,
              .element_bytes = shape.value_bytes,
              .border_bytes = shape.border_bytes};
  const KeptBytes all = layer.kept(at);
  Stated bytes{.kept = static_cast<double>(all.activations),
               .all = static_cast<double>(all.activations),
               .pairs = static_cast<double>(all.weight_pairs)};
  const auto recomputed = layout.recomputed(index);
  if (!layer.is_block || recomputed == Recompute::What::nothing) return bytes;
  at.recompute_attention = true;
  bytes.kept = recomputed == Recompute::What::attention
                   ? static_cast<double>(layer.kept(at).activations)
                   : static_cast<double>(index > 0 ? border_bytes(workload.spec.layers[index - 1], shape) : 0);
  return bytes;
}

LayerBytes layer_bytes(const Workload& workload, const Layout& layout, size_t index) {
  const auto& layer = workload.spec.layers[index];
  const WorkShape shape = layout.work_shape(workload);
  const LayerWork work = layer.work(shape);
  const double border = static_cast<double>(border_bytes(layer, shape)), value = static_cast<double>(shape.value_bytes);
  const auto recomputed = layout.recomputed(index);
  const Stated stated = workload.software.own_ops ? stated_bytes(workload, layout, index) : Stated();
  LayerBytes bytes;
  if (work.heads > 0) {
    bytes.kept = stated.kept;
    double all = stated.all;
    if (!workload.software.own_ops) {
      bytes.kept = block_activation_bytes(work.hidden, work.heads, shape, recomputed);
      all = block_activation_bytes(work.hidden, work.heads, shape, Recompute::What::nothing);
    }
    if (recomputed != Recompute::What::nothing) bytes.remade = std::max(0.0, all - bytes.kept);
  } else if (workload.software.own_ops) {
    bytes.kept = stated.kept;
  } else if (index == 0) {
    bytes.kept = border / value;  // the dropout mask
  } else if (layer.output.empty()) {
    const double columns = columns_of_head(work), input = static_cast<double>(shape.rows() * shape.value_bytes) *
                                                          static_cast<double>(work.products.front().k);
    const double logits = static_cast<double>(shape.tokens()) * columns * 4;
    bytes.kept = shape.fused ? 2 * input : 2 * input + logits;
  }
  if (layer.output.empty()) {
    const double columns = columns_of_head(work);
    bytes.transient =
        shape.fused ? kFusedRows * columns * (4 + value) : static_cast<double>(shape.tokens()) * columns * 4;
  }
  const bool is_input = recomputed == Recompute::What::layers && work.recomputable;
  if (layout.offload.enabled && (layout.offload.everything || is_input)) bytes.moved = bytes.kept;
  if (workload.software.own_ops) bytes.pairs = stated.pairs;
  for (const auto& product : work.products) {
    const auto rows = static_cast<double>(product.k), sides = static_cast<double>(product.m + product.n);
    if (product.phase == Phase::backward_weight && work.heads > 0 && !workload.software.own_ops)
      bytes.pairs += rows * sides * value;
    if (product.phase == Phase::forward && product.stored && work.heads > 0)
      bytes.transient = std::max(
          bytes.transient, 2 * value * product.count * static_cast<double>(product.m) * static_cast<double>(product.n));
  }
  return bytes;
}

struct ChunkBytes {
  double kept = 0, moved = 0, remade = 0, pairs = 0;
};

// Goes through a stage's list and counts.
std::pair<double, int> peak_activations(const Layout& layout, const std::vector<Instruction>& list,
                                        const std::vector<ChunkBytes>& chunks) {
  const auto away = away_between(layout, list);
  const auto horizon = static_cast<size_t>(layout.offload.horizon);
  double now = 0, peak = 0;
  int at = -1;
  for (size_t i = 0; i < list.size(); ++i) {
    const auto& chunk = chunks[list[i].chunk];
    double besides = 0;
    if (i + horizon < list.size() && list[i + horizon].op == Op::backward_input && away[i + horizon])
      now += chunks[list[i + horizon].chunk].moved;
    if (list[i].op == Op::forward) now += chunk.kept - (away[i] ? chunk.moved : 0);
    if (list[i].op == Op::backward_input) besides = chunk.remade;
    if (now + besides > peak) {
      peak = now + besides;
      at = static_cast<int>(i);
    }
    // A backward that is not split is drained layer by layer.
    const auto drained = [&](size_t next) {
      return next < list.size() && list[next].op == Op::backward_weight && list[next].chunk == list[i].chunk &&
             list[next].microbatch == list[i].microbatch;
    };
    if (list[i].op == Op::backward_input) now += (drained(i + 1) ? 0 : chunk.pairs) - chunk.kept;
    if (list[i].op == Op::backward_weight) {
      const bool whole = i > 0 && list[i - 1].op == Op::backward_input && list[i - 1].chunk == list[i].chunk &&
                         list[i - 1].microbatch == list[i].microbatch;
      if (!whole) now -= chunk.pairs;
    }
  }
  return {peak, at};
}

double largest_border(const Workload& workload, const WorkShape& shape) {
  int64_t bytes = 0;
  for (const auto& layer : workload.spec.layers) bytes = std::max(bytes, border_bytes(layer, shape));
  return static_cast<double>(bytes);
}

double communication_bytes(const Workload& workload, const Layout& layout, double largest_layer) {
  const WorkShape shape = layout.work_shape(workload);
  double bytes = 0;
  if (layout.pipeline > 1) bytes += 4 * largest_border(workload, shape);  // one in, one out, either way
  if (shape.sequence_parallel) bytes += largest_border(workload, shape) * layout.tensor;
  if (layout.sharded() == Sharding::Stage::weights) bytes += 2 * largest_layer * value_bytes(workload.precision);
  if (layout.sharded() >= Sharding::Stage::gradients) bytes += largest_layer * workload.software.gradient_bytes;
  return bytes;
}

std::string gib(double bytes) {
  return cat(std::round(bytes / kGiB * 10) / 10);
}

int chunks_of(const std::vector<int>& chunk_of_layer) {
  return *std::max_element(chunk_of_layer.begin(), chunk_of_layer.end()) + 1;
}

}  // namespace

MemoryBytes device_bytes(const Cluster& cluster, const Layout& layout) {
  if (cluster.multiprocessors == 0) return {};
  const int groups = (layout.tensor > 1) + (layout.replicas > 1) + 2 * (layout.pipeline > 1);
  return {.communication = groups * kCommunicatorBytes, .workspace = kRuntimeBytes};
}

MemoryBytes state_bytes(const Workload& workload, const Layout& layout, const LayerSpec& layer) {
  const double master = workload.precision == Precision::fp32 ? 0 : 4;
  const auto all = static_cast<double>(local_parameters(layer, layout.tensor));
  const auto shared = static_cast<double>(shared_parameters(layout, layer));
  const auto held = [&](Sharding::Stage stage) {  // elements, of what is shared out from this stage of sharding on
    return layout.sharded() >= stage ? all - shared + shared / layout.sharding.degree : all;
  };
  MemoryBytes bytes{.weights = held(Sharding::Stage::weights) * value_bytes(workload.precision),
                    .gradients = held(Sharding::Stage::gradients) * workload.software.gradient_bytes};
  const double rounded = master > 0 ? value_bytes(workload.precision) : 0;
  if (layout.states_on_host)
    bytes.host = held(Sharding::Stage::optimizer) *
                 (workload.software.optimizer_bytes + 2 * workload.software.gradient_bytes + rounded);
  else
    bytes.optimizer = held(Sharding::Stage::optimizer) * (workload.software.optimizer_bytes + master);
  return bytes;
}

double moved_bytes(const Workload& workload, const Layout& layout, size_t layer) {
  return !layout.offload.enabled ? 0 : layer_bytes(workload, layout, layer).moved;
}

double kept_bytes(const Workload& workload, const Layout& layout, size_t layer) {
  const LayerBytes bytes = layer_bytes(workload, layout, layer);
  return bytes.kept - bytes.moved;
}

std::vector<double> kept_by_chunk(const Workload& workload, const Layout& layout,
                                  const std::vector<int>& chunk_of_layer, int chunks) {
  std::vector<double> kept(chunks);
  for (size_t layer = 0; layer < chunk_of_layer.size(); ++layer)
    kept[chunk_of_layer[layer]] += kept_bytes(workload, layout, layer);
  return kept;
}

std::vector<StageMemory> estimate_memory(const Workload& workload, const Cluster& cluster, const Layout& layout,
                                         const Schedule& schedule, const std::vector<int>& chunk_of_layer) {
  std::vector<StageMemory> stages(schedule.stages);
  std::vector<double> largest(stages.size());  // layer, of what is shared out
  std::vector<ChunkBytes> chunks(chunks_of(chunk_of_layer));
  for (size_t layer = 0; layer < chunk_of_layer.size(); ++layer) {
    const auto& spec = workload.spec.layers[layer];
    const auto chunk = static_cast<size_t>(chunk_of_layer[layer]);
    const auto stage = static_cast<size_t>(schedule.stage_of_chunk[chunk]);
    const auto bytes = layer_bytes(workload, layout, layer);
    chunks[chunk].kept += bytes.kept;
    chunks[chunk].moved += bytes.moved;
    chunks[chunk].remade = std::max(chunks[chunk].remade, bytes.remade);
    chunks[chunk].pairs += bytes.pairs;
    largest[stage] = std::max(largest[stage], static_cast<double>(shared_parameters(layout, spec)));
    auto& of_stage = stages[stage].bytes;
    const MemoryBytes states = state_bytes(workload, layout, spec);
    of_stage.weights += states.weights;
    of_stage.gradients += states.gradients;
    of_stage.optimizer += states.optimizer;
    of_stage.host += states.host;
    of_stage.workspace = std::max(of_stage.workspace, bytes.transient);
  }
  const MemoryBytes device = device_bytes(cluster, layout);
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    auto& bytes = stages[stage].bytes;
    std::tie(bytes.activations, stages[stage].peak_instruction) =
        peak_activations(layout, schedule.instructions[stage], chunks);
    bytes.communication = communication_bytes(workload, layout, largest[stage]) + device.communication;
    bytes.workspace += device.workspace;
  }
  return stages;
}

MemoryFit memory_fit(const Cluster& cluster, const std::vector<StageMemory>& stages) {
  MemoryFit fit{.fits = true, .limit = cluster.memory_bytes};
  for (size_t stage = 0; stage < stages.size(); ++stage)
    if (stages[stage].bytes.total() > fit.bytes) {
      fit.bytes = stages[stage].bytes.total();
      fit.stage = static_cast<int>(stage);
    }
  fit.fits = fit.bytes <= fit.limit;
  const auto& most = stages[fit.stage].bytes;
  fit.why =
      cat("stage ", fit.stage, " needs ", gib(fit.bytes), " GiB of ", gib(fit.limit), ": weights ", gib(most.weights),
          ", gradients ", gib(most.gradients), ", optimizer ", gib(most.optimizer), ", activations ",
          gib(most.activations), ", communication ", gib(most.communication), ", workspace ", gib(most.workspace));
  return fit;
}

namespace {

struct Change {
  Layout layout;
  std::string text;
};

// Every further step of one kind, mildest first.
std::vector<Change> smaller_microbatches(const Layout& from) {
  std::vector<Change> changes;
  Layout layout = from;
  while (layout.microbatch_size % 2 == 0) {
    layout.microbatch_size /= 2;
    layout.microbatches *= 2;
    changes.push_back({layout, cat("microbatches of ", layout.microbatch_size, " instead of ", from.microbatch_size)});
  }
  return changes;
}
std::vector<Change> more_recomputation(const Workload& workload, const Layout& from) {
  std::vector<Change> changes;
  for (const auto recomputed : {Recompute::What::attention, Recompute::What::layers}) {
    if (recomputed == Recompute::What::attention && workload.software.fused) continue;  // the fused op does so anyway
    Layout more = from;
    more.recompute = recompute_blocks(workload.spec, recomputed);
    const auto recomputes_less = [&](size_t layer) { return from.recomputed(layer) < more.recomputed(layer); };
    const auto layers = std::views::iota(size_t{0}, workload.spec.layers.size());
    if (std::ranges::any_of(layers, recomputes_less))
      changes.push_back({more, cat("recompute ", recompute_text(more))});
  }
  return changes;
}
std::vector<Change> more_sharding(const Layout& from) {
  std::vector<Change> changes;
  for (int stage = static_cast<int>(from.sharded()) + 1; stage <= 3 && from.replicas > 1; ++stage) {
    static constexpr const char* kWhat[] = {"", "optimizer states", "optimizer states and gradients",
                                            "optimizer states, gradients and weights"};
    changes.push_back({from, cat("shard ", kWhat[stage], " (ZeRO-", stage, ")")});
    Sharding& sharding = changes.back().layout.sharding;
    if (from.sharding.degree == 1) sharding.degree = from.replicas;
    sharding.stage = static_cast<Sharding::Stage>(stage);
  }
  return changes;
}
std::vector<Change> offloading(const Cluster& cluster, const Layout& from) {
  const bool keeps_inputs = std::ranges::any_of(
      from.recompute, [](const Recompute& recompute) { return recompute.what == Recompute::What::layers; });
  if (from.offload.enabled || !keeps_inputs || cluster.host.bytes_per_second == 0) return {};
  std::vector<Change> changes = {{from, "move inputs of recomputed blocks to the host"}};
  changes.back().layout.offload.enabled = true;
  return changes;
}

}  // namespace

std::optional<MemoryAdvice> advice_to_fit(const Workload& workload, const Cluster& cluster, const Layout& layout) {
  const auto fits = [&](const Layout& tried) {
    const auto schedule = make_schedule(tried.schedule_choice());
    std::vector<double> costs;
    for (const auto& layer : workload.spec.layers) costs.push_back(layer.flops_per_token);
    return memory_fit(cluster, estimate_memory(workload, cluster, tried, schedule,
                                               assign_chunks(costs, schedule.stage_of_chunk)))
        .fits;
  };
  const std::vector<std::function<std::vector<Change>(const Layout&)>> kinds = {
      smaller_microbatches, [&](const Layout& from) { return more_recomputation(workload, from); }, more_sharding,
      [&](const Layout& from) { return offloading(cluster, from); }};
  for (const auto& kind : kinds)
    for (const auto& change : kind(layout))
      if (fits(change.layout)) return MemoryAdvice{change.layout, change.text};
  // None alone: all of each kind, before the next one.
  MemoryAdvice together{layout, ""};
  for (const auto& kind : kinds) {
    const auto changes = kind(together.layout);
    for (const auto& change : changes)
      if (fits(change.layout))
        return MemoryAdvice{change.layout, together.text + (together.text.empty() ? "" : "; ") + change.text};
    if (changes.empty()) continue;
    together = {changes.back().layout, together.text + (together.text.empty() ? "" : "; ") + changes.back().text};
  }
  return std::nullopt;
}

}  // namespace shardline
