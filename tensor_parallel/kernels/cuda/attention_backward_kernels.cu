// The gradients of attention in two launches without atomic additions, the first for the rows of queries, the second
// for those of keys. Both recompute the scores and the masks.
#include "tensor_parallel/kernels/cuda/attention_tiles.h"
#include "tensor_parallel/kernels/cuda/number_dispatch.h"

namespace shardline::cuda {
namespace {

// What the gradient of a score depends on besides products. The gradient is 0 if the query does not see the key.
struct ScoreQuery {
  bool sees;
  float log_sum_exp, along;  // along: d_out * out, summed over a head's features
};

// The products from which the gradients of scores follow, for this warp's rows and the columns of a tile: of queries
// and keys, and of gradients of results and values.
template <class T, class Rows, class Columns>
SHARDLINE_DEVICE void multiply_pairs(float (&score)[T::kColumns / 8][4], float (&d_dropped)[T::kColumns / 8][4],
                                     const Rows& rows, const Columns& columns) {
  multiply_rows<T>(score, rows.first_tile, warp_index() * 16, columns.first_tile);
  multiply_rows<T>(d_dropped, rows.second_tile, warp_index() * 16, columns.second_tile);
}

// Replaces these products by the probabilities after dropout and by the gradients of the scores. query_of(half, column)
// returns what belongs to row g + 8 * half and a column of the tile.
template <class T, class QueryOf>
SHARDLINE_DEVICE void to_gradients(float (&score)[T::kColumns / 8][4], float (&d_dropped)[T::kColumns / 8][4],
                                   uint32_t kept, float kept_scale, float scale, const QueryOf& query_of) {
  const int t = lane_index() % 4;
  SHARDLINE_UNROLLED
  for (int n = 0; n < T::kColumns / 8; ++n) {
    SHARDLINE_UNROLLED
    for (int i = 0; i < 4; ++i) {
      const ScoreQuery query = query_of(i / 2, 8 * n + 2 * t + i % 2);
      if (query.sees) {
        const float probability = exponential2(score[n][i] * (scale * kLog2E) - query.log_sum_exp * kLog2E);
        const float factor = (kept >> (4 * n + i) & 1u) != 0 ? kept_scale : 0.0f;
        score[n][i] = probability * factor;
        d_dropped[n][i] = probability * (d_dropped[n][i] * factor - query.along) * scale;
      } else {
        score[n][i] = d_dropped[n][i] = 0;
      }
    }
  }
}

// Computes dq of one block of queries, and the sums of d_out * out over the features of each of its rows.
template <class T, class S>
SHARDLINE_KERNEL(T::kThreads, query_gradients, AttentionBackward a, AttentionSizes sizes) {
  constexpr int kEights = T::kColumns / 8;
  SharedRoom room;
  const int64_t batch = block_y() / sizes.heads, head = block_y() % sizes.heads;
  const int64_t first = (blocks_x() - 1 - block_x()) * T::kRows;
  const int g = lane_index() / 4, t = lane_index() % 4, warp_row = warp_index() * 16;
  const TilePair<T, T::kRows, S> queries(room, a.q, a.d_out, batch, head);
  const TilePair<T, T::kColumns, S> keys(room, a.k, a.v, batch, head);
  const HeadMask mask(sizes, batch, head);
  queries.load(first, sizes);
  sync_block();

  float along[2] = {0, 0}, log_sum_exp[2] = {0, 0};
  SHARDLINE_UNROLLED
  for (int half = 0; half < 2; ++half) {
    const int64_t row = first + warp_row + g + 8 * half;
    if (row < sizes.length) {
      const S* out = head_start<S>(a.out, batch, head) + row * a.out.token_stride;
      const int place = (warp_row + g + 8 * half) * T::kStride;
      for (int64_t d = t; d < sizes.head_dim; d += 4)
        along[half] += number(out[d]) * number(static_cast<S>(queries.second_tile[place + d]));
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
    keys.load(key, sizes);
    sync_block();
    float score[kEights][4] = {}, d_score[kEights][4] = {};
    multiply_pairs<T>(score, d_score, queries, keys);
    to_gradients<T>(score, d_score, mask.of_queries<kEights>(first + warp_row, key), mask.kept_scale(), sizes.scale,
                    [&](int half, int column) -> ScoreQuery {
                      const int64_t row = first + warp_row + g + 8 * half;
                      return {key + column <= row && row < sizes.length, log_sum_exp[half], along[half]};
                    });
    multiply_columns<T>(dq, d_score, keys.first_tile);
  }
  store_rows<T>(head_start<S>(a.dq, batch, head), a.dq.token_stride, first + warp_row, dq, 1, 1, sizes);
}

// Computes dk and dv of one block of keys from all queries that see them.
template <class T, class S>
SHARDLINE_KERNEL(T::kThreads, key_gradients, AttentionBackward a, AttentionSizes sizes) {
  constexpr int kEights = T::kColumns / 8;
  SharedRoom room;
  const int64_t batch = block_y() / sizes.heads, head = block_y() % sizes.heads;
  const int64_t first = block_x() * T::kRows;  // the blocks of the first keys take longest and start first
  const int g = lane_index() / 4, warp_row = warp_index() * 16;
  const TilePair<T, T::kRows, S> keys(room, a.k, a.v, batch, head);
  const TilePair<T, T::kColumns, S> queries(room, a.q, a.d_out, batch, head);
  const HeadMask mask(sizes, batch, head);
  // These values of the queries are read from global memory, because fp32 tiles leave no shared memory for them.
  const float *log_sum_exp = a.log_sum_exp + block_y() * sizes.length, *along = a.along + block_y() * sizes.length;
  keys.load(first, sizes);

  float dk[T::kDim / 8][4] = {}, dv[T::kDim / 8][4] = {};
  for (int64_t query = first; query < sizes.length; query += T::kColumns) {
    sync_block();
    queries.load(query, sizes);
    sync_block();
    float dropped[kEights][4] = {}, d_score[kEights][4] = {};
    multiply_pairs<T>(dropped, d_score, keys, queries);
    to_gradients<T>(dropped, d_score, mask.of_keys<kEights>(first + warp_row, query), mask.kept_scale(), sizes.scale,
                    [&](int half, int column) -> ScoreQuery {
                      const int64_t key = first + warp_row + g + 8 * half, of = query + column;
                      const bool exists = of < sizes.length;
                      return {key <= of && exists, exists ? log_sum_exp[of] : 0.0f, exists ? along[of] : 0.0f};
                    });
    multiply_columns<T>(dv, dropped, queries.second_tile);
    multiply_columns<T>(dk, d_score, queries.first_tile);
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
