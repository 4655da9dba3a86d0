#include "partitioner/memory/published_block_bytes.h"

namespace shardline {

double block_activation_bytes(int64_t hidden, int64_t heads, const WorkShape& shape, Recompute::What recomputed) {
  const double value = shape.value_bytes, t = shape.tensor;
  const double border = shape.tokens() * hidden, length = shape.length;
  // A rank's share of rows in tensors that T does not split by columns.
  const double rows = shape.sequence_parallel ? 1 / t : 1;
  if (recomputed == Recompute::What::layers) return border * value * rows;

  const double whole = 4 * value + 2;    // inputs of two norms and two linears, masks of two dropouts
  const double by_columns = 12 * value;  // q, k, v, the attention's output; the MLP before and after its activation
  const double kept = border * (whole * rows + by_columns / t);
  const double rows_of_scores = shape.tokens() * heads / t;
  if (shape.fused) return kept + 4 * rows_of_scores;
  if (recomputed == Recompute::What::attention) return kept;
  return kept + (2 * value + 1) * rows_of_scores * length;  // softmax, its dropout, the mask
}

}  // namespace shardline
