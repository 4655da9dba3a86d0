#include "partitioner/search/block_bounds.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <queue>
#include <tuple>

#include "partitioner/memory/layer_bytes.h"
#include "partitioner/memory/rank_memory.h"

namespace shardline {
namespace {

// A lower bound of the microbatches that stage s keeps, in units of a whole stage. One microbatch is a valid bound for
// every schedule, but a loose one: the search would simulate many layouts that cannot fit. A schedule kind that is
// added to SearchSpace::schedules needs its own case.
double least_kept(const Layout& layout, int stage) {
  const int p = layout.pipeline, m = layout.microbatches, v = layout.chunks_per_stage;
  if (layout.active_microbatches > 0) return 1;
  switch (layout.schedule.kind) {
    case ScheduleKind::simple:
      return m;
    case ScheduleKind::interleaved_1f1b:
      // All blocks may be in the chunk that keeps the fewest microbatches, the stage's last one: the microbatches that
      // pass it before the first backward.
      if (v > 1) return std::min({m, p, 2 * (p - stage) - 1});
      [[fallthrough]];
    case ScheduleKind::interleaved:
    case ScheduleKind::zb_h1:
      return std::min(m, p - stage);
    default:
      return 1;
  }
}

bool same_recompute(const Layout& layout, size_t a, size_t b) {
  return layout.recompute.empty() || layout.recompute[a] == layout.recompute[b];
}

// How many recomputed layers may share one kept input, that of the first; 1 if the layer is not recomputed.
int group_of(const Layout& layout, size_t layer) {
  return layout.recomputed(layer) == Recompute::What::layers ? layout.recompute[layer].group : 1;
}

// The activations in use while the layer runs backward, in addition to those that are kept. A stage keeps the most just
// before a backward pass begins: then nothing has been freed, and what was moved out for the first layer is back.
int64_t running_bytes(const Workload& workload, const Layout& layout, size_t layer, const LayerBytes& bytes) {
  const bool is_last = layer + 1 == workload.spec.layers.size();
  if (!workload.spec.layers[layer].has_backward) return 0;
  const int64_t gradient = is_last ? 0 : layer_bytes(workload, layout, 0, layer + 1).input;
  const auto& [forward, whole, split] = bytes.passes;
  const int64_t backward = has_whole_backwards(layout.schedule) ? whole : std::min(whole, split);
  const int64_t used = layout.recomputed(layer) == Recompute::What::layers
                           ? std::max(forward, bytes.kept.activations - bytes.input + backward)
                           : backward;
  return gradient + used + moved_bytes(workload, layout, layer, bytes) / group_of(layout, layer);
}

// Values gathered for a pass, and gradients before their reduction: all gradients if a backward is whole, otherwise
// either those of products or the others. An adjacent layer's values are gathered while this layer's are in use, and
// its gradients are still being reduced while this layer's are computed.
double pass_bytes(const Workload& workload, const Layout& layout, const LayerSpec& layer, bool with_neighbour) {
  const Sharding& sharding = layout.sharding;
  const bool weights = layout.sharded() == Sharding::Level::weights;
  if (layout.sharded() < Sharding::Level::gradients) return 0;
  int64_t values = 0, deferred = 0, others = 0;  // elements
  for (const auto& param : layer.params) {
    if (weights && param.numel() < sharding.whole_below) continue;
    const int64_t elements = local_elements(param, layout.tensor);
    if (weights) values += elements;
    if (param.trainable) (param.deferred ? deferred : others) += elements;
  }
  int64_t gradients = has_whole_backwards(layout.schedule) ? deferred + others : std::max(deferred, others);
  if (with_neighbour) {
    // The limits include the padding of each parameter and of each segment; there are no more segments than parameters.
    const auto padding =
        std::ssize(layer.params) * FlatLayout::kAlignment * (1 + int64_t{sharding.degree} * layout.tensor);
    if (sharding.most_gathered == 0 || 2 * (values + padding) <= sharding.most_gathered) values *= 2;
    if (!sharding.reduces_alone(deferred + others + padding)) gradients *= 2;
  }
  return static_cast<double>(values * width_of(workload.types.values)) +
         static_cast<double>(gradients * workload.software.gradient_bytes);
}

// Whether two blocks in a chunk are always adjacent and have no parameter in common.
bool blocks_are_neighbours(const ModelSpec& spec) {
  const auto is_block = [](const LayerSpec& layer) { return layer.is_block; };
  const auto first = std::ranges::find_if(spec.layers, is_block);
  const auto end = std::find_if_not(first, spec.layers.end(), is_block);
  const auto is_tied = [](const ParamSpec& param) { return !param.tied_to.empty(); };
  return std::none_of(end, spec.layers.end(), is_block) &&
         std::none_of(first, end, [&](const LayerSpec& layer) { return std::ranges::any_of(layer.params, is_tied); });
}

}  // namespace

bool has_whole_backwards(const ScheduleSource& source) {
  return source.kind == ScheduleKind::simple || source.kind == ScheduleKind::interleaved ||
         source.kind == ScheduleKind::interleaved_1f1b;
}

std::vector<BlockNeed> block_needs(const Workload& workload, const Layout& layout) {
  const auto& layers = workload.spec.layers;
  const bool neighbours = blocks_are_neighbours(workload.spec);
  std::vector<BlockNeed> needs;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (!layers[i].is_block) continue;
    if (!needs.empty() && alike(layers[i], layers[i - 1]) && same_recompute(layout, i, i - 1)) continue;
    const LayerBytes bytes = layer_bytes(workload, layout, 0, i);
    const int64_t kept = kept_bytes(workload, layout, i, bytes) - moved_bytes(workload, layout, i, bytes);
    const auto running = static_cast<double>(running_bytes(workload, layout, i, bytes));
    const auto may_be_beside = [](const ParamSpec&) { return true; };  // blocks may share parameters
    needs.push_back({.states = least_state_bytes(workload, layout, layers[i], may_be_beside),
                     .kept = static_cast<double>(kept) / group_of(layout, i),
                     .passing = running + pass_bytes(workload, layout, layers[i], false),
                     .with_neighbour = running + pass_bytes(workload, layout, layers[i], neighbours)});
  }
  return needs;
}

StageNeeds::StageNeeds(const Layout& layout, const std::vector<BlockNeed>& needs)
    : least_(layout.pipeline, std::numeric_limits<double>::infinity()),
      chunks_(std::max(layout.chunks_per_stage, own_chunks_per_stage(layout.schedule.kind))) {
  if (needs.empty()) return;
  for (int stage = 0; stage < layout.pipeline; ++stage) {
    const double count = least_kept(layout, stage);
    for (const auto& need : needs) least_[stage] = std::min(least_[stage], need.states + count * need.kept);
  }
  passing_ = std::ranges::min_element(needs, {}, &BlockNeed::passing)->passing;
  with_neighbour_ = std::ranges::min_element(needs, {}, &BlockNeed::with_neighbour)->with_neighbour;
}

double StageNeeds::bytes(size_t stage, int blocks) const {
  return blocks * least_[stage] + (blocks > chunks_ ? with_neighbour_ : passing_);
}

double StageNeeds::places(double room) const {
  double sum = 0;
  for (const double each : least_) {
    const double narrow = std::floor((room - passing_) / each), wide = std::floor((room - with_neighbour_) / each);
    sum += std::max(0.0, narrow <= chunks_ ? narrow : std::max<double>(chunks_, wide));
  }
  return sum;
}

double StageNeeds::of_largest_stage(int blocks) const {
  using Stage = std::tuple<double, int, size_t>;  // bytes with one block more, number of blocks then, stage
  std::priority_queue<Stage, std::vector<Stage>, std::greater<>> next;
  for (size_t stage = 0; stage < least_.size(); ++stage) next.emplace(bytes(stage, 1), 1, stage);
  double largest = 0;
  for (int placed = 0; placed < blocks; ++placed) {
    const auto [with_one_more, count, stage] = next.top();
    largest = with_one_more;
    next.pop();
    next.emplace(bytes(stage, count + 1), count + 1, stage);
  }
  return largest;
}

}  // namespace shardline
