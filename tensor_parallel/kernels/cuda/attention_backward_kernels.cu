// The gradients of attention in two launches without atomic additions: the rows of queries, then those of keys. Scores
// and masks are made again in both.
#include "tensor_parallel/kernels/cuda/attention_tiles.h"
#include "tensor_parallel/kernels/cuda/number_dispatch.h"

namespace shardline::cuda {
namespace {

// The probability, and its gradient times it, of one score. along: of the row.
struct ScoreGradient {
  float dropped, d_score;
};
SHARDLINE_DEVICE ScoreGradient score_gradient(float score, float d_dropped, bool seen, bool kept, float log_sum_exp,
                                              float along, float kept_scale, float scale) {
  if (!seen) return {0.0f, 0.0f};
  const float probability = exponential2(score * (scale * kLog2E) - log_sum_exp * kLog2E);
  const float factor = kept ? kept_scale : 0.0f;
  return {probability * factor, probability * (d_dropped * factor - along) * scale};
}

// dq of one block of queries, and d_out * out of their rows.
template <class T, class S>
SHARDLINE_KERNEL(T::kThreads, query_gradients, AttentionBackward a, AttentionSizes sizes) {
  constexpr int kEights = T::kColumns / 8;
  SharedRoom room;
  const auto queries = room.take<S>(T::kRows * T::kStride);
  const auto d_outs = room.take<S>(T::kRows * T::kStride);
  const auto keys = room.take<S>(T::kColumns * T::kStride);
  const auto values = room.take<S>(T::kColumns * T::kStride);
  const int64_t batch = block_y() / sizes.heads, head = block_y() % sizes.heads;
  const int64_t first = (blocks_x() - 1 - block_x()) * T::kRows;
  const int g = lane_index() / 4, t = lane_index() % 4, warp_row = warp_index() * 16;
  const HeadMask mask(sizes, batch, head);
  const S *k = head_start<S>(a.k, batch, head), *v = head_start<S>(a.v, batch, head);
  load_tile<T, T::kRows>(queries, static_cast<const S*>(head_start<S>(a.q, batch, head)), a.q.token_stride, first,
                         sizes);
  load_tile<T, T::kRows>(d_outs, static_cast<const S*>(head_start<S>(a.d_out, batch, head)), a.d_out.token_stride,
                         first, sizes);
  sync_block();

  float along[2] = {0, 0}, log_sum_exp[2] = {0, 0};
  SHARDLINE_UNROLLED
  for (int half = 0; half < 2; ++half) {
    const int64_t row = first + warp_row + g + 8 * half;
    if (row < sizes.length) {
      const S* out = head_start<S>(a.out, batch, head) + row * a.out.token_stride;
      for (int64_t d = t; d < sizes.head_dim; d += 4)
        along[half] += number(out[d]) * number(static_cast<S>(d_outs[(warp_row + g + 8 * half) * T::kStride + d]));
      log_sum_exp[half] = a.log_sum_exp[block_y() * sizes.length + row];
    }
    along[half] += shuffle_xor(along[half], 1);
    along[half] += shuffle_xor(along[half], 2);
    if (t == 0 && row < sizes.length) a.along[block_y() * sizes.length + row] = along[half];
  }

  float dq[T::kDim / 8][4] = {};
  const int64_t end = first + T::kRows < sizes.length ? first + T::kRows : sizes.length;
  for (int64_t key = 0; key < end; key += T::kColumns) {
    sync_block();
    load_tile<T, T::kColumns>(keys, k, a.k.token_stride, key, sizes);
    load_tile<T, T::kColumns>(values, v, a.v.token_stride, key, sizes);
    sync_block();
    float score[kEights][4] = {}, d_dropped[kEights][4] = {};
    multiply_rows<T>(score, queries, warp_row, keys);
    multiply_rows<T>(d_dropped, d_outs, warp_row, values);
    const uint32_t kept = mask.of_queries<kEights>(first + warp_row, key);
    SHARDLINE_UNROLLED
    for (int n = 0; n < kEights; ++n) {
      SHARDLINE_UNROLLED
      for (int i = 0; i < 4; ++i) {
        const int64_t row = first + warp_row + g + i / 2 * 8, column = key + 8 * n + 2 * t + i % 2;
        score[n][i] = score_gradient(score[n][i], d_dropped[n][i], column <= row && row < sizes.length,
                                     (kept >> (4 * n + i) & 1u) != 0, log_sum_exp[i / 2], along[i / 2],
                                     mask.kept_scale(), sizes.scale)
                          .d_score;
      }
    }
    multiply_columns<T>(dq, score, keys);
  }
  store_rows<T>(head_start<S>(a.dq, batch, head), a.dq.token_stride, first + warp_row, dq, 1, 1, sizes);
}

// dk and dv of one block of keys, from all queries that see them.
template <class T, class S>
SHARDLINE_KERNEL(T::kThreads, key_gradients, AttentionBackward a, AttentionSizes sizes) {
  constexpr int kEights = T::kColumns / 8;
  SharedRoom room;
  const auto keys = room.take<S>(T::kRows * T::kStride);
  const auto values = room.take<S>(T::kRows * T::kStride);
  const auto queries = room.take<S>(T::kColumns * T::kStride);
  const auto d_outs = room.take<S>(T::kColumns * T::kStride);
  const int64_t batch = block_y() / sizes.heads, head = block_y() % sizes.heads;
  const int64_t first = block_x() * T::kRows;  // the first keys are seen by most
  const int g = lane_index() / 4, t = lane_index() % 4, warp_row = warp_index() * 16;
  const HeadMask mask(sizes, batch, head);
  // Of the queries. The tiles of fp32 leave no shared memory for them.
  const float *log_sum_exp = a.log_sum_exp + block_y() * sizes.length, *along = a.along + block_y() * sizes.length;
  const S *q = head_start<S>(a.q, batch, head), *d_out = head_start<S>(a.d_out, batch, head);
  load_tile<T, T::kRows>(keys, static_cast<const S*>(head_start<S>(a.k, batch, head)), a.k.token_stride, first, sizes);
  load_tile<T, T::kRows>(values, static_cast<const S*>(head_start<S>(a.v, batch, head)), a.v.token_stride, first,
                         sizes);

  float dk[T::kDim / 8][4] = {}, dv[T::kDim / 8][4] = {};
  for (int64_t query = first; query < sizes.length; query += T::kColumns) {
    sync_block();
    load_tile<T, T::kColumns>(queries, q, a.q.token_stride, query, sizes);
    load_tile<T, T::kColumns>(d_outs, d_out, a.d_out.token_stride, query, sizes);
    sync_block();
    float score[kEights][4] = {}, d_dropped[kEights][4] = {};
    multiply_rows<T>(score, keys, warp_row, queries);
    multiply_rows<T>(d_dropped, values, warp_row, d_outs);
    const uint32_t kept = mask.of_keys<kEights>(first + warp_row, query);
    SHARDLINE_UNROLLED
    for (int n = 0; n < kEights; ++n) {
      SHARDLINE_UNROLLED
      for (int i = 0; i < 4; ++i) {
        const int64_t row = first + warp_row + g + i / 2 * 8, column = query + 8 * n + 2 * t + i % 2;
        const bool exists = column < sizes.length;
        const ScoreGradient gradient = score_gradient(
            score[n][i], d_dropped[n][i], row <= column && exists, (kept >> (4 * n + i) & 1u) != 0,
            exists ? log_sum_exp[column] : 0.0f, exists ? along[column] : 0.0f, mask.kept_scale(), sizes.scale);
        score[n][i] = gradient.dropped;
        d_dropped[n][i] = gradient.d_score;
      }
    }
    multiply_columns<T>(dv, score, d_outs);
    multiply_columns<T>(dk, d_dropped, queries);
  }
  store_rows<T>(head_start<S>(a.dk, batch, head), a.dk.token_stride, first + warp_row, dk, 1, 1, sizes);
  store_rows<T>(head_start<S>(a.dv, batch, head), a.dv.token_stride, first + warp_row, dv, 1, 1, sizes);
}

}  // namespace

void attention_backward(const AttentionCase& c, const AttentionBackward& a, Number type, Stream stream) {
  const HeadRows read[] = {a.q, a.k, a.v, a.d_out};
  const AttentionSizes sizes = sizes_of(c, read_packed(c, bytes_of(type), read, 4));
  const int64_t rows = c.batch * c.heads * c.length, bytes = rows * c.head_dim * bytes_of(type);
  with_number(type, [&]<class S>(S) {
    with_tiling<S>(c.head_dim, [&]<class T>(T) {
      const int64_t blocks = (c.length + T::kRows - 1) / T::kRows;
      launch({.kernel = "attention_query_gradients",
              .blocks_x = blocks,
              .blocks_y = c.batch * c.heads,
              .threads = T::kThreads,
              .shared_bytes = T::kBackwardBytes,
              .bytes_read = 5 * bytes + 4 * rows,
              .bytes_written = bytes + 4 * rows},
             stream, query_gradients<T, S>, a, sizes);
      launch({.kernel = "attention_key_gradients",
              .blocks_x = blocks,
              .blocks_y = c.batch * c.heads,
              .threads = T::kThreads,
              .shared_bytes = T::kBackwardBytes,
              .bytes_read = 4 * bytes + 8 * rows,
              .bytes_written = 2 * bytes},
             stream, key_gradients<T, S>, a, sizes);
    });
  });
}

}  // namespace shardline::cuda
