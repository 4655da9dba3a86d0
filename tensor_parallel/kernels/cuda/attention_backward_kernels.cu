// The gradients of attention in two launches without atomic additions: the first for rows of queries, the second for
// rows of keys. Both recompute the scores and the masks.
#include "tensor_parallel/kernels/cuda/attention_kernels.h"
#include "tensor_parallel/kernels/cuda/number_dispatch.h"

namespace shardline::cuda {
namespace {

// What the gradient of a score depends on besides products: shift, the query's log_sum_exp times log2(e), and along,
// the sum of d_out * out over a head's features.
struct ScoreQuery {
  float shift, along;
};

// score is the product of a query and a key; it is replaced by the probability after dropout. d_dropped is the product
// of the gradient of the query's result and the key's value; it is replaced by the gradient of the score, without the
// factor sizes.scale.
SHARDLINE_DEVICE void to_gradient(float& score, float& d_dropped, float scale, const ScoreQuery& query, float factor) {
  const float probability = exponential2(score * scale - query.shift);
  score = probability * factor;
  d_dropped = probability * (d_dropped * factor - query.along);
}

// d_out * out, summed over the features of one row of a head by the four lanes of a group.
template <class T, class S>
SHARDLINE_DEVICE float sum_along(const AttentionBackward& a, const Head& head, int64_t row,
                                 const AttentionSizes& sizes) {
  float sum = 0;
  if (row < sizes.length) {
    const S* const out = head.start<S>(a.out) + row * a.out.token_stride;
    const S* const d_out = head.start<S>(a.d_out) + row * a.d_out.token_stride;
    SHARDLINE_UNROLLED
    for (int i = 0; i < T::kDim; i += 4 * T::kPack) {
      const int column = i + lane_index() % 4 * T::kPack;
      const auto left = read_pack<T::kPack>(out, column, sizes), right = read_pack<T::kPack>(d_out, column, sizes);
      SHARDLINE_UNROLLED
      for (int j = 0; j < T::kPack; ++j) sum += number(left.value[j]) * number(right.value[j]);
    }
  }
  sum += shuffle_xor(sum, 1);
  return sum + shuffle_xor(sum, 2);
}

// Computes dq of one block of queries, and the sums of d_out * out over the features of each of its rows.
template <class T, class S>
SHARDLINE_KERNEL(T::kThreads, query_gradients, AttentionBackward a, AttentionSizes sizes) {
  constexpr int kEights = T::kChunk / 8;
  SharedRoom room;
  const Head head(sizes);
  const int64_t first = (blocks_y() - 1 - block_y()) * T::kRows;
  const int64_t warp_first = first + 16 * warp_index(), row = warp_first + lane_index() / 4;
  const TilePair<T, T::kRows, 1, InOrder, S> queries(room, a.q, a.d_out, head);
  const TilePair<T, T::kColumns, T::kBuffers, KeysAsColumns, S> keys(room, a.k, a.v, head);
  queries.start(first, 0, sizes);
  WarpRows<T, S, 1, T::kHalf> query_rows(queries.first_tile(0), 16 * warp_index());
  WarpRows<T, S, 1, T::kHalf> d_out_rows(queries.second_tile(0), 16 * warp_index());
  const MaskOfQueries mask(sizes, head, warp_first);

  ScoreQuery of_row[2] = {};
  SHARDLINE_UNROLLED
  for (int half = 0; half < 2; ++half) {
    of_row[half].along = sum_along<T, S>(a, head, row + 8 * half, sizes);
    if (row + 8 * half >= sizes.length) continue;
    const int64_t place = head.index * sizes.length + row + 8 * half;
    of_row[half].shift = a.log_sum_exp[place] * kLog2E;
    if (lane_index() % 4 == 0) a.along[place] = of_row[half].along;
  }

  float dq[1][T::kDim / 8][4] = {};
  const auto add_chunk = [&](int64_t key, int place, int buffer) {
    mask.with<kEights>(key, [&](const auto& kept) SHARDLINE_INLINED {
      float score[1][kEights][4] = {}, d_score[1][kEights][4] = {};
      multiply_rows(score, query_rows, keys.first_tile(buffer), place);
      multiply_rows(d_score, d_out_rows, keys.second_tile(buffer), place);
      SHARDLINE_UNROLLED
      for (int pair = 0; pair < kEights / 2; ++pair) {
        const auto keeps = kept.columns(pair);
        SHARDLINE_UNROLLED
        for (int e = 0; e < 2; ++e) SHARDLINE_UNROLLED
        for (int i = 0; i < 4; ++i)
          to_gradient(score[0][2 * pair + e][i], d_score[0][2 * pair + e][i], sizes.scale * kLog2E, of_row[i / 2],
                      keeps(e, i) ? sizes.kept_scale : 0.0f);
      }
      if (key + T::kChunk > warp_first) {
        const int last = row - key;
        SHARDLINE_UNROLLED
        for (int n = 0; n < kEights; ++n) SHARDLINE_UNROLLED
        for (int i = 0; i < 4; ++i)
          if (KeysAsColumns::key_of(n, i) > last + i / 2 * 8) d_score[0][n][i] = 0;
      }
      multiply_columns<T>(dq, d_score, keys.first_tile(buffer), place);
    });
  };
  for_each_tile<T>(
      0, first + T::kRows < sizes.length ? first + T::kRows : sizes.length,
      [&](int64_t key, int buffer) { keys.start(key, buffer, sizes); },
      [&] {
        query_rows.hold();
        d_out_rows.hold();
      },
      [&](int64_t key, int buffer) {
        for (int chunk = 0; chunk < T::kColumns && key + chunk < warp_first + 16; chunk += T::kChunk)
          add_chunk(key + chunk, chunk, buffer);
      });
  store_rows<T>(head.start<S>(a.dq), a.dq.token_stride, {row, row + 8}, dq[0], {sizes.scale, sizes.scale}, sizes);
}

// log_sum_exp and along of a tile of queries: in shared memory or, with fp32 tiles, which leave no shared memory for
// them, read from global memory.
template <class T>
class QuerySums {
 public:
  SHARDLINE_DEVICE QuerySums(SharedRoom& room, const AttentionBackward& a, const Head& head, int64_t length)
      : log_sum_exp_(a.log_sum_exp + head.index * length),
        along_(a.along + head.index * length),
        length_(length),
        tiles_(room.take<float>(T::kBuffers * T::kQuerySums)) {}

  // Starts to load the values of the queries from `first` on; see start_copy.
  SHARDLINE_DEVICE void start(int64_t first, int buffer) const {
    static_assert(T::kThreads >= T::kQuerySums);
    const int i = thread_index();
    const int64_t query = first + i % T::kColumns;
    if (i < T::kQuerySums)
      start_copy<1>(tiles_, buffer * T::kQuerySums + i, (i < T::kColumns ? log_sum_exp_ : along_) + query,
                    query < length_);
  }
  // Reads the values of the queries in two adjacent columns of the tile that begins with `first`.
  SHARDLINE_DEVICE void read(ScoreQuery (&queries)[2], int64_t first, int buffer, int column) const {
    if constexpr (T::kQuerySums > 0) {
      const int place = buffer * T::kQuerySums + column;
      const auto log_sum_exp = load<2>(tiles_, place), along = load<2>(tiles_, place + T::kColumns);
      for (int j = 0; j < 2; ++j) queries[j] = {log_sum_exp.value[j] * kLog2E, along.value[j]};
    } else {
      for (int j = 0; j < 2; ++j) {
        const int64_t query = first + column + j;
        queries[j] = query < length_ ? ScoreQuery{log_sum_exp_[query] * kLog2E, along_[query]} : ScoreQuery{};
      }
    }
  }

 private:
  const float *log_sum_exp_, *along_;
  int64_t length_;
  SharedArray<float> tiles_;
};

// Computes dk and dv for one block of keys from all queries that see them.
template <class T, class S>
SHARDLINE_KERNEL(T::kThreads, key_gradients, AttentionBackward a, AttentionSizes sizes) {
  constexpr int kEights = T::kChunk / 8, kSets = T::kKeySets, kWarpKeys = 16 * kSets;
  using Order = KeysAsRows<kSets>;
  SharedRoom room;
  const Head head(sizes);
  const int64_t first = block_y() * T::kKeyRows;  // blocks of the first keys take longest, so they start first
  const int64_t warp_first = first + kWarpKeys * warp_index();
  const TilePair<T, T::kKeyRows, 1, Order, S> keys(room, a.k, a.v, head);
  const TilePair<T, T::kColumns, T::kBuffers, InOrder, S> queries(room, a.q, a.d_out, head);
  const QuerySums<T> sums(room, a, head, sizes.length);
  keys.start(first, 0, sizes);
  const WarpRows<T, S, kSets, false> key_rows(keys.first_tile(0), kWarpKeys * warp_index());
  const WarpRows<T, S, kSets, false> value_rows(keys.second_tile(0), kWarpKeys * warp_index());
  const MaskOfKeys<kSets> mask(sizes, head, warp_first);

  float dk[kSets][T::kDim / 8][4] = {}, dv[kSets][T::kDim / 8][4] = {};
  const auto add_chunk = [&](int64_t query, int place, int buffer) {
    mask.template with<kEights>(query, [&](const auto& kept) SHARDLINE_INLINED {
      float dropped[kSets][kEights][4] = {}, d_score[kSets][kEights][4] = {};
      multiply_rows(dropped, key_rows, queries.first_tile(buffer), place);
      multiply_rows(d_score, value_rows, queries.second_tile(buffer), place);
      SHARDLINE_UNROLLED
      for (int n = 0; n < kEights; ++n) {
        const auto keeps = kept.eight(n);
        ScoreQuery of_column[2];
        sums.read(of_column, query - place, buffer, place + 8 * n + lane_index() % 4 * 2);
        SHARDLINE_UNROLLED
        for (int set = 0; set < kSets; ++set) SHARDLINE_UNROLLED
        for (int i = 0; i < 4; ++i)
          to_gradient(dropped[set][n][i], d_score[set][n][i], sizes.scale * kLog2E, of_column[i % 2],
                      keeps(set, i) ? sizes.kept_scale : 0.0f);
      }
      if (query < warp_first + kWarpKeys || query + T::kChunk > sizes.length) {
        const int before = query - warp_first;
        const int64_t rest = sizes.length - query;
        SHARDLINE_UNROLLED
        for (int n = 0; n < kEights; ++n) SHARDLINE_UNROLLED
        for (int set = 0; set < kSets; ++set) SHARDLINE_UNROLLED
        for (int i = 0; i < 4; ++i) {
          const int column = 8 * n + lane_index() % 4 * 2 + i % 2;
          if (Order::key_of(set, i) > before + column || column >= rest) dropped[set][n][i] = d_score[set][n][i] = 0;
        }
      }
      multiply_columns<T>(dv, dropped, queries.second_tile(buffer), place);
      multiply_columns<T>(dk, d_score, queries.first_tile(buffer), place);
    });
  };
  for_each_tile<T>(
      first, sizes.length,
      [&](int64_t query, int buffer) {
        queries.start(query, buffer, sizes);
        sums.start(query, buffer);
      },
      [] {},
      [&](int64_t query, int buffer) {
        for (int chunk = 0; chunk < T::kColumns; chunk += T::kChunk)
          if (query + chunk + T::kChunk > warp_first && query + chunk < sizes.length)
            add_chunk(query + chunk, chunk, buffer);
      });
  SHARDLINE_UNROLLED
  for (int set = 0; set < kSets; ++set) {
    const int64_t row = warp_first + Order::key_of(set, 0);
    store_rows<T>(head.start<S>(a.dk), a.dk.token_stride, {row, row + 1}, dk[set], {sizes.scale, sizes.scale}, sizes);
    store_rows<T>(head.start<S>(a.dv), a.dv.token_stride, {row, row + 1}, dv[set], {1, 1}, sizes);
  }
}

}  // namespace

void attention_backward(const AttentionCase& c, const AttentionBackward& a, Number type, Stream stream) {
  const HeadRows read[] = {a.q, a.k, a.v, a.out, a.d_out}, written[] = {a.dq, a.dk, a.dv};
  AttentionSizes sizes = sizes_of(c);
  sizes.packed = rows_aligned(c, bytes_of(type), 16, read, 5);
  sizes.paired = rows_aligned(c, bytes_of(type), 2 * bytes_of(type), written, 3);
  const int64_t rows = c.batch * c.heads * c.length, bytes = rows * c.head_dim * bytes_of(type);
  with_number(type, [&]<class S>(S) {
    with_tiling<S>(c.head_dim, [&]<class T>(T) {
      launch({.kernel = "attention_query_gradients",
              .blocks_x = c.batch * c.heads,
              .blocks_y = (c.length + T::kRows - 1) / T::kRows,
              .threads = T::kThreads,
              .shared_bytes = T::kQueryBytes,
              .bytes_read = 5 * bytes + 4 * rows,
              .bytes_written = bytes + 4 * rows},
             stream, query_gradients<T, S>, a, sizes);
      launch({.kernel = "attention_key_gradients",
              .blocks_x = c.batch * c.heads,
              .blocks_y = (c.length + T::kKeyRows - 1) / T::kKeyRows,
              .threads = T::kThreads,
              .shared_bytes = T::kKeyBytes,
              .bytes_read = 4 * bytes + 8 * rows,
              .bytes_written = 2 * bytes},
             stream, key_gradients<T, S>, a, sizes);
    });
  });
}

}  // namespace shardline::cuda
