#include "partitioner/memory/layer_bytes.h"

#include <algorithm>

#include "partitioner/memory/published_block_bytes.h"

namespace shardline {
namespace {

constexpr int64_t kFusedRows = 256;  // tokens whose logits a fused head holds at a time

int64_t input_bytes(const Workload& workload, const Layout& layout, size_t layer) {
  return layer == 0 ? 0 : border_bytes(workload.spec.layers[layer - 1], layout.work_shape(workload));
}

LayerBytes own_bytes(const Workload& workload, const Layout& layout, int t, size_t index) {
  const LayerSpec& layer = workload.spec.layers[index];
  const WorkShape shape = layout.work_shape(workload);
  const KeptCase at{.tokens = shape.tokens(),
                    .rows = shape.rows(),
                    .length = shape.length,
                    .t = t,
                    .t_degree = layout.tensor,
                    .element_bytes = shape.value_bytes,
                    .border_bytes = shape.border_bytes,
                    .recompute_attention = layout.recomputed(index) == Recompute::What::attention,
                    .attention_in_fp32 = workload.attention_in_fp32,
                    .on_accelerator = layout.on_accelerators};
  return {.input = input_bytes(workload, layout, index), .kept = layer.kept(at), .passes = layer.passes(at)};
}

struct PublishedBytes {
  double kept = 0, pairs = 0, passing = 0;
};

void add_head(PublishedBytes& bytes, const LayerWork& work, const WorkShape& shape) {
  const Product& product = work.products.front();
  const double columns = product.n;
  const double logits = shape.tokens() * columns * 4;
  const double input = shape.rows() * shape.value_bytes * product.k;
  bytes.kept = shape.fused ? 2 * input : 2 * input + logits;
  bytes.passing = shape.fused ? kFusedRows * columns * (4 + shape.value_bytes) : logits;
}

// Adds the pairs of every linear and, while a block runs, its two largest tensors.
void add_block(PublishedBytes& bytes, const LayerWork& work, const WorkShape& shape, Recompute::What recomputed) {
  const auto kept = [&](Recompute::What what) { return block_activation_bytes(work.hidden, work.heads, shape, what); };
  const bool attention = recomputed == Recompute::What::attention;
  bytes.kept = kept(attention ? recomputed : Recompute::What::nothing);
  for (const auto& product : work.products) {
    const double rows = product.m, results = rows * product.n * product.count;
    if (product.phase == Phase::backward_weight) bytes.pairs += product.k * (product.m + product.n) * shape.value_bytes;
    if (product.phase == Phase::forward && product.stored)
      bytes.passing = std::max(bytes.passing, 2.0 * shape.value_bytes * results);
  }
  if (attention) bytes.passing += kept(Recompute::What::nothing) - bytes.kept;  // what is recomputed
}

LayerBytes published_bytes(const Workload& workload, const Layout& layout, size_t index) {
  const LayerSpec& layer = workload.spec.layers[index];
  const WorkShape shape = layout.work_shape(workload);
  const LayerWork work = layer.work(shape);
  const double value_bytes = shape.value_bytes;
  PublishedBytes bytes;
  if (work.heads > 0)
    add_block(bytes, work, shape, layout.recomputed(index));
  else if (layer.output.empty())
    add_head(bytes, work, shape);
  else if (index == 0)
    bytes.kept = border_bytes(layer, shape) / value_bytes;  // the dropout mask
  if (shape.sequence_parallel) bytes.passing += border_bytes(layer, shape) * layout.tensor;
  const int64_t kept = bytes.kept, pairs = bytes.pairs, passing = bytes.passing;
  return {.input = input_bytes(workload, layout, index), .kept = {kept, pairs}, .passes = {passing, passing, passing}};
}

}  // namespace

LayerBytes layer_bytes(const Workload& workload, const Layout& layout, int t, size_t layer) {
  return workload.software.own_ops ? own_bytes(workload, layout, t, layer) : published_bytes(workload, layout, layer);
}

std::vector<LayerBytes> layer_bytes(const Workload& workload, const Layout& layout, int t) {
  std::vector<LayerBytes> bytes;
  for (size_t layer = 0; layer < workload.spec.layers.size(); ++layer)
    bytes.push_back(layer_bytes(workload, layout, t, layer));
  return bytes;
}

int64_t kept_bytes(const Workload& workload, const Layout& layout, size_t layer, const LayerBytes& bytes) {
  if (!workload.spec.layers[layer].has_backward) return 0;
  return layout.recomputed(layer) == Recompute::What::layers ? bytes.input : bytes.kept.activations;
}

int64_t moved_bytes(const Workload& workload, const Layout& layout, size_t layer, const LayerBytes& bytes) {
  const bool recomputed = layout.recomputed(layer) == Recompute::What::layers;
  return may_move_out(layout.offload, recomputed) ? kept_bytes(workload, layout, layer, bytes) : 0;
}

}  // namespace shardline
