// Attention that never stores the matrix of scores (Dao et al. 2022, arXiv 2205.14135, in the form of Dao 2023, arXiv
// 2307.08691), with the dropout masks of core/numbers/philox.h.
#include <stdexcept>

#include "tensor_parallel/kernels/cuda/attention_kernels.h"
#include "tensor_parallel/kernels/cuda/number_dispatch.h"

namespace shardline::cuda {
namespace {

// Replaces a tile's scores by the probabilities that are kept, up to a factor per row that mixed and sum share:
// 2^((score - largest) * scale). On entry, largest, mixed and sum cover the previous tiles. On return, largest and sum
// also cover this tile; mixed is only rescaled, and the caller adds the values.
template <class T, int kEights, class Kept>
SHARDLINE_DEVICE void to_probabilities(float (&score)[kEights][4], float (&largest)[2], float (&sum)[2],
                                       float (&mixed)[T::kDim / 8][4], float scale, const Kept& kept) {
  float shift[2];
  SHARDLINE_UNROLLED
  for (int half = 0; half < 2; ++half) {
    float top = largest[half];
    SHARDLINE_UNROLLED
    for (int n = 0; n < kEights; ++n) top = larger(top, larger(score[n][2 * half], score[n][2 * half + 1]));
    top = larger(top, shuffle_xor(top, 1));
    top = larger(top, shuffle_xor(top, 2));
    const float finite = top == -INFINITY ? 0.0f : top;
    const float shrunk = exponential2((largest[half] - finite) * scale);
    largest[half] = top;
    shift[half] = finite * scale;
    sum[half] *= shrunk;
    SHARDLINE_UNROLLED
    for (int d = 0; d < T::kDim / 8; ++d) {
      mixed[d][2 * half] *= shrunk;
      mixed[d][2 * half + 1] *= shrunk;
    }
  }
  SHARDLINE_UNROLLED
  for (int pair = 0; pair < kEights / 2; ++pair) {
    const auto keeps = kept.columns(pair);
    SHARDLINE_UNROLLED
    for (int e = 0; e < 2; ++e) SHARDLINE_UNROLLED
    for (int i = 0; i < 4; ++i) {
      float& element = score[2 * pair + e][i];
      const float probability = exponential2(element * scale - shift[i / 2]);
      sum[i / 2] += probability;
      element = keeps(e, i) ? probability : 0.0f;
    }
  }
}

// Computes the results of one block of queries of one head from all keys up to the block's last query.
template <class T, class S>
SHARDLINE_KERNEL(T::kThreads, attention_rows, AttentionForward a, AttentionSizes sizes) {
  constexpr int kEights = T::kColumns / 8;
  SharedRoom room;
  const Head head(sizes);
  const int64_t first = (blocks_y() - 1 - block_y()) * T::kRows;  // blocks with the longest rows start first
  const int64_t warp_first = first + 16 * warp_index(), row = warp_first + lane_index() / 4;
  const auto queries = room.take<S>(T::kRows * T::kStride);
  const TilePair<T, T::kColumns, T::kBuffers, KeysAsColumns, S> seen(room, a.k, a.v, head);
  RowSource<T, InOrder, S>(a.q, head).template start<T::kRows>(queries, first, sizes);
  WarpRows<T, S, 1, T::kHalf> rows(queries, 16 * warp_index());
  const MaskOfQueries mask(sizes, head, warp_first);
  const float scale = sizes.scale * kLog2E;

  float mixed[1][T::kDim / 8][4] = {};
  float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};  // for rows g and g + 8; sum covers this lane's columns
  for_each_tile<T>(
      0, first + T::kRows < sizes.length ? first + T::kRows : sizes.length,
      [&](int64_t key, int buffer) { seen.start(key, buffer, sizes); }, [&] { rows.hold(); },
      [&](int64_t key, int buffer) {
        if (key >= warp_first + 16) return;
        mask.with<kEights>(key, [&](const auto& kept) SHARDLINE_INLINED {
          float score[1][kEights][4] = {};
          multiply_rows(score, rows, seen.first_tile(buffer), 0);
          if (key + T::kColumns > warp_first) {
            const int last = row - key;
            SHARDLINE_UNROLLED
            for (int n = 0; n < kEights; ++n) SHARDLINE_UNROLLED
            for (int i = 0; i < 4; ++i)
              if (KeysAsColumns::key_of(n, i) > last + i / 2 * 8) score[0][n][i] = -INFINITY;
          }
          to_probabilities<T>(score[0], largest, sum, mixed[0], scale, kept);
          multiply_columns<T>(mixed, score, seen.second_tile(buffer), 0);
        });
      });
  SHARDLINE_UNROLLED
  for (int half = 0; half < 2; ++half) {
    sum[half] += shuffle_xor(sum[half], 1);
    sum[half] += shuffle_xor(sum[half], 2);
    if (lane_index() % 4 == 0 && row + 8 * half < sizes.length)  // NaN for a row without a finite score
      a.log_sum_exp[head.index * sizes.length + row + 8 * half] =
          sum[half] > 0 ? largest[half] * sizes.scale + logf(sum[half]) : bits_to_float(0x7fc00000u);
  }
  store_rows<T>(head.start<S>(a.out), a.out.token_stride, {row, row + 8}, mixed[0],
                {sizes.kept_scale / sum[0], sizes.kept_scale / sum[1]}, sizes);
}

}  // namespace

AttentionSizes sizes_of(const AttentionCase& c) {
  if (c.head_dim > kWidestHead || c.batch * c.heads > kMostHeads)
    throw std::invalid_argument("attention has too many heads, or its heads are too wide");
  if (!(c.scale > 0)) throw std::invalid_argument("the scale of attention scores must be positive");
  AttentionSizes s{.heads = c.heads, .length = c.length, .scale = c.scale};
  s.head_dim = c.head_dim;
  if (c.probability == 0) return s;
  if (c.length > c.max_positions) throw std::invalid_argument("dropout needs max_positions of at least the length");
  const uint64_t limit = keep_limit(1 - c.probability);
  if (limit > UINT32_MAX) return s;  // every element is kept
  s.drops = true;
  s.kept_scale = static_cast<float>(c.probability < 1 ? 1 / (1 - c.probability) : 0);
  s.seed = c.seed;
  s.keys = philox_keys(lower_half(c.seed), upper_half(c.seed));
  s.limit = lower_half(limit);
  s.op = c.op;
  s.step = c.step;
  s.first_head = c.first_head;
  s.max_positions = c.max_positions;
  s.samples = c.samples;
  return s;
}

bool rows_aligned(const AttentionCase& c, int64_t number_bytes, int64_t bytes, const HeadRows* rows, int count) {
  bool aligned = c.head_dim * number_bytes % bytes == 0;
  for (int i = 0; i < count; ++i)
    for (const int64_t stride : {rows[i].batch_stride, rows[i].head_stride, rows[i].token_stride})
      aligned = aligned && stride * number_bytes % bytes == 0 && is_aligned(rows[i].data, bytes);
  return aligned;
}

void attention_forward(const AttentionCase& c, const AttentionForward& a, Number type, Stream stream) {
  const HeadRows read[] = {a.q, a.k, a.v};
  AttentionSizes sizes = sizes_of(c);
  sizes.packed = rows_aligned(c, bytes_of(type), 16, read, 3);
  sizes.paired = rows_aligned(c, bytes_of(type), 2 * bytes_of(type), &a.out, 1);
  const int64_t rows = c.batch * c.heads * c.length, bytes = rows * c.head_dim * bytes_of(type);
  with_number(type, [&]<class S>(S) {
    with_tiling<S>(c.head_dim, [&]<class T>(T) {
      launch({.kernel = "attention_forward",
              .blocks_x = c.batch * c.heads,
              .blocks_y = (c.length + T::kRows - 1) / T::kRows,
              .threads = T::kThreads,
              .shared_bytes = T::kForwardBytes,
              .bytes_read = 3 * bytes,
              .bytes_written = bytes + 4 * rows},
             stream, attention_rows<T, S>, a, sizes);
    });
  });
}

}  // namespace shardline::cuda
