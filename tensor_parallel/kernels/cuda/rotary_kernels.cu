#include "tensor_parallel/kernels/cuda/cuda_launches.h"
#include "tensor_parallel/kernels/cuda/number_dispatch.h"
#include "tensor_parallel/kernels/cuda/row_blocks.h"

namespace shardline::cuda {
namespace {

// Rotates one row; each thread rotates every block_threads()-th pair.
template <class S>
SHARDLINE_KERNEL(StripCut::kMostThreads, turn_rows, RotatePairs a) {
  const int64_t row = block_x();
  S* x = static_cast<S*>(a.x) + row * a.row_stride;
  const float* cosine = a.table + a.position[row] * a.pairs;
  const float* sine = cosine + a.positions * a.pairs;
  const float sign = a.back ? -1.0f : 1.0f;
  for (int64_t i = thread_index(); i < a.heads * a.pairs; i += block_threads()) {
    const int64_t pair = i % a.pairs;
    S* point = x + i / a.pairs * a.head_dim + 2 * pair;
    const float first = number(point[0]), second = number(point[1]), s = sign * sine[pair];
    point[0] = stored<S>(first * cosine[pair] - second * s);
    point[1] = stored<S>(second * cosine[pair] + first * s);
  }
}

}  // namespace

void rotate_pairs(const RotatePairs& a, Number type, Stream stream) {
  const int64_t turned = a.heads * a.pairs;
  const int64_t bytes = a.rows * turned * 2 * bytes_of(type);
  if (turned == 0) return;
  with_number(type, [&]<class S>(S) {
    launch({.kernel = "rotate_pairs",
            .blocks_x = a.rows,
            .threads = StripCut(turned).threads,
            .bytes_read = bytes + a.rows * (8 + 8 * a.pairs),
            .bytes_written = bytes},
           stream, turn_rows<S>, a);
  });
}

}  // namespace shardline::cuda
