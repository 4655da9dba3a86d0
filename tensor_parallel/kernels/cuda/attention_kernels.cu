// Attention that never stores the matrix of scores (Dao et al. 2022, arXiv 2205.14135, in the form of Dao 2023, arXiv
// 2307.08691), with the dropout masks of core/numbers/philox.h.
#include <stdexcept>

#include "tensor_parallel/kernels/cuda/attention_tiles.h"
#include "tensor_parallel/kernels/cuda/number_dispatch.h"

namespace shardline::cuda {
namespace {

// Computes the results of one block of queries of one head from all keys up to its last query. Scores are multiplied by
// log2(e), so that exponentials are powers of two.
template <class T, class S>
SHARDLINE_KERNEL(T::kThreads, attention_rows, AttentionForward a, AttentionSizes sizes) {
  constexpr int kEights = T::kColumns / 8;
  SharedRoom room;
  const auto queries = room.take<S>(T::kRows * T::kStride);
  const int64_t batch = block_y() / sizes.heads, head = block_y() % sizes.heads;
  const TilePair<T, T::kColumns, S> seen(room, a.k, a.v, batch, head);
  const int64_t first = (blocks_x() - 1 - block_x()) * T::kRows;  // the blocks with the longest rows start first
  const int g = lane_index() / 4, t = lane_index() % 4, warp_row = warp_index() * 16;
  const HeadMask mask(sizes, batch, head);
  load_tile<T, T::kRows>(queries, static_cast<const S*>(head_start<S>(a.q, batch, head)), a.q.token_stride, first,
                         sizes);

  float mixed[T::kDim / 8][4] = {};
  float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};  // for rows g and g + 8; sum covers this lane's columns
  const int64_t end = first + T::kRows < sizes.length ? first + T::kRows : sizes.length;
  for (int64_t key = 0; key < end; key += T::kColumns) {
    sync_block();  // no warp needs the tiles of the previous iteration any more
    seen.load(key, sizes);
    sync_block();
    float score[kEights][4] = {};
    multiply_rows<T>(score, queries, warp_row, seen.first_tile);
    float top[2] = {largest[0], largest[1]};
    SHARDLINE_UNROLLED
    for (int n = 0; n < kEights; ++n) SHARDLINE_UNROLLED
    for (int i = 0; i < 4; ++i) {
      const bool counts = key + 8 * n + 2 * t + i % 2 <= first + warp_row + g + i / 2 * 8;
      score[n][i] = counts ? score[n][i] * (sizes.scale * kLog2E) : -INFINITY;
      top[i / 2] = score[n][i] > top[i / 2] ? score[n][i] : top[i / 2];
    }
    SHARDLINE_UNROLLED
    for (int half = 0; half < 2; ++half) {
      for (int other = 1; other <= 2; other *= 2) {
        const float theirs = shuffle_xor(top[half], other);
        top[half] = theirs > top[half] ? theirs : top[half];
      }
      const float shift = top[half] == -INFINITY ? 0.0f : top[half];
      const float shrunk = exponential2(largest[half] - shift);
      largest[half] = top[half];
      sum[half] *= shrunk;
      SHARDLINE_UNROLLED
      for (int d = 0; d < T::kDim / 8; ++d) {
        mixed[d][2 * half] *= shrunk;
        mixed[d][2 * half + 1] *= shrunk;
      }
      top[half] = shift;
    }
    const uint32_t kept = mask.of_queries<kEights>(first + warp_row, key);
    SHARDLINE_UNROLLED
    for (int n = 0; n < kEights; ++n) {
      SHARDLINE_UNROLLED
      for (int i = 0; i < 4; ++i) {
        const float probability = exponential2(score[n][i] - top[i / 2]);
        sum[i / 2] += probability;
        score[n][i] = (kept >> (4 * n + i) & 1u) != 0 ? probability : 0.0f;
      }
    }
    multiply_columns<T>(mixed, score, seen.second_tile);
  }
  SHARDLINE_UNROLLED
  for (int half = 0; half < 2; ++half) {
    sum[half] += shuffle_xor(sum[half], 1);
    sum[half] += shuffle_xor(sum[half], 2);
    const int64_t row = first + warp_row + g + 8 * half;
    if (t == 0 && row < sizes.length)  // NaN for a row without any finite score
      a.log_sum_exp[block_y() * sizes.length + row] =
          sum[half] > 0 ? largest[half] * kLn2 + logf(sum[half]) : bits_to_float(0x7fc00000u);
  }
  store_rows<T>(head_start<S>(a.out, batch, head), a.out.token_stride, first + warp_row, mixed,
                mask.kept_scale() / sum[0], mask.kept_scale() / sum[1], sizes);
}

}  // namespace

AttentionSizes sizes_of(const AttentionCase& c, bool packed) {
  if (c.head_dim > kWidestHead || c.batch * c.heads > kMostHeads)
    throw std::invalid_argument("attention of too many heads or heads that are too wide");
  AttentionSizes s{.heads = c.heads, .length = c.length, .head_dim = c.head_dim, .scale = c.scale, .packed = packed};
  if (c.probability == 0) return s;
  if (c.length > c.max_positions) throw std::invalid_argument("dropout needs positions for the whole length");
  s.drops = true;
  s.kept_scale = static_cast<float>(c.probability < 1 ? 1 / (1 - c.probability) : 0);
  s.seed = c.seed;
  s.limit = keep_limit(1 - c.probability);
  s.op = c.op;
  s.step = c.step;
  s.first_head = c.first_head;
  s.max_positions = c.max_positions;
  s.samples = c.samples;
  return s;
}

bool read_packed(const AttentionCase& c, int64_t number_bytes, const HeadRows* rows, int count) {
  bool packed = c.head_dim * number_bytes % 16 == 0;
  for (int i = 0; i < count; ++i)
    for (const int64_t stride : {rows[i].batch_stride, rows[i].head_stride, rows[i].token_stride})
      packed = packed && stride * number_bytes % 16 == 0 && is_aligned(rows[i].data, 16);
  return packed;
}

void attention_forward(const AttentionCase& c, const AttentionForward& a, Number type, Stream stream) {
  const HeadRows read[] = {a.q, a.k, a.v};
  const AttentionSizes sizes = sizes_of(c, read_packed(c, bytes_of(type), read, 3));
  const int64_t rows = c.batch * c.heads * c.length, bytes = rows * c.head_dim * bytes_of(type);
  with_number(type, [&]<class S>(S) {
    with_tiling<S>(c.head_dim, [&]<class T>(T) {
      launch({.kernel = "attention_forward",
              .blocks_x = (c.length + T::kRows - 1) / T::kRows,
              .blocks_y = c.batch * c.heads,
              .threads = T::kThreads,
              .shared_bytes = T::kForwardBytes,
              .bytes_read = 3 * bytes,
              .bytes_written = bytes + 4 * rows},
             stream, attention_rows<T, S>, a, sizes);
    });
  });
}

}  // namespace shardline::cuda
