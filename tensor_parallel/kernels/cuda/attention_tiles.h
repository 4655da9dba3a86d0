// Parts that the attention kernels share: tiles of a head's rows in shared memory, their products, which warps compute,
// and dropout masks. A warp computes 16 rows of a matrix. Of every eight columns, lane L holds the elements (g, 2t),
// (g, 2t + 1), (g + 8, 2t) and (g + 8, 2t + 1), where g = L / 4 and t = L % 4: the arrangement in which tensor cores
// return products. fp32 products, which do not use tensor cores, have the same arrangement.
#pragma once
#include <type_traits>

#include "core/cuda/launch.h"
#include "core/cuda/tensor_cores.h"
#include "tensor_parallel/kernels/cuda/cuda_launches.h"

namespace shardline::cuda {

constexpr float kLog2E = 1.44269504088896340736f, kLn2 = 0.69314718055994530942f;

// The most shared memory that a block may have on GPUs of compute capability 8.6 and 8.9 (CUDA C++ Programming Guide,
// "Technical Specifications per Compute Capability"); others from 8.0 on allow more.
constexpr size_t kMostSharedBytes = 99 * 1024;

// The sizes of tiles: kRows rows of one matrix are multiplied with kColumns rows of another at a time. Both have up to
// kDim features.
template <class S, int kDim_>
struct Tiling {
  static constexpr int kDim = kDim_;
  static constexpr int kWarps = sizeof(S) * kDim <= 512 ? 4 : 2;
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kRows = 16 * kWarps;
  static constexpr int kColumns = kDim <= 64 ? 64 : 32;
  static constexpr int kPack = 16 / sizeof(S);
  static constexpr int kStride = kDim + kPack;  // between rows in shared memory, which thus begin in different banks
  // The shared memory of a block, with kRows rows of one matrix in the forward pass and of two in the backward pass,
  // and kColumns rows of two others.
  static constexpr size_t kForwardBytes = (kRows + 2 * kColumns) * kStride * sizeof(S);
  static constexpr size_t kBackwardBytes = (2 * kRows + 2 * kColumns) * kStride * sizeof(S);
  static_assert(kForwardBytes <= kMostSharedBytes && kBackwardBytes <= kMostSharedBytes);
};

// The arguments that a launch passes by value.
struct AttentionSizes {
  int64_t heads = 0, length = 0, head_dim = 0;
  float scale = 1;
  bool packed = false;  // rows can be read 16 bytes at a time
  bool drops = false;
  float kept_scale = 1;
  uint64_t seed = 0, limit = 0;
  uint32_t op = 0, step = 0;
  int64_t first_head = 0, max_positions = 0;
  const int64_t* samples = nullptr;
};

template <class S>
SHARDLINE_DEVICE S* head_start(const HeadRows& rows, int64_t batch, int64_t head) {
  return static_cast<S*>(rows.data) + batch * rows.batch_stride + head * rows.head_stride;
}

// Loads rows first to first + kRows - 1 of a head. Rows that do not exist and features beyond the head's are zero.
template <class T, int kRows, class S>
SHARDLINE_DEVICE void load_tile(const SharedArray<S>& tile, const S* head, int64_t token_stride, int64_t first,
                                const AttentionSizes& sizes) {
  constexpr int kPacks = T::kDim / T::kPack;
  for (int i = thread_index(); i < kRows * kPacks; i += T::kThreads) {
    const int row = i / kPacks, column = i % kPacks * T::kPack;
    const S* from = head + (first + row) * token_stride + column;
    Pack<S, T::kPack> pack{};
    if (first + row < sizes.length) {
      if (sizes.packed) {
        if (column < sizes.head_dim) pack = load<T::kPack>(from);
      } else {
        for (int j = 0; j < T::kPack; ++j)
          if (column + j < sizes.head_dim) pack.value[j] = from[j];
      }
    }
    store<T::kPack>(tile, row * T::kStride + column, pack);
  }
}

// Tiles of kRows rows of two matrices of a head that are loaded together: queries and gradients of results, or keys and
// values.
template <class T, int kRows, class S>
class TilePair {
 public:
  SHARDLINE_DEVICE TilePair(SharedRoom& room, const HeadRows& first, const HeadRows& second, int64_t batch,
                            int64_t head)
      : first_tile(room.take<S>(kRows * T::kStride)),
        second_tile(room.take<S>(kRows * T::kStride)),
        first_head_(head_start<S>(first, batch, head)),
        second_head_(head_start<S>(second, batch, head)),
        first_stride_(first.token_stride),
        second_stride_(second.token_stride) {}

  SHARDLINE_DEVICE void load(int64_t row, const AttentionSizes& sizes) const {
    load_tile<T, kRows>(first_tile, first_head_, first_stride_, row, sizes);
    load_tile<T, kRows>(second_tile, second_head_, second_stride_, row, sizes);
  }

  const SharedArray<S> first_tile, second_tile;

 private:
  const S *first_head_, *second_head_;
  int64_t first_stride_, second_stride_;
};

// sum [16, kColumns] += rows a_row to a_row + 15 of a, times the transpose of the first kColumns rows of b.
template <class T, class S>
SHARDLINE_DEVICE void multiply_rows(float (&sum)[T::kColumns / 8][4], const SharedArray<S>& a, int a_row,
                                    const SharedArray<S>& b) {
  if constexpr (std::is_same_v<S, float>) {
    const int g = lane_index() / 4, t = lane_index() % 4;
    for (int k = 0; k < T::kDim; ++k) {
      const float upper = a[(a_row + g) * T::kStride + k], lower = a[(a_row + g + 8) * T::kStride + k];
      SHARDLINE_UNROLLED
      for (int n = 0; n < T::kColumns / 8; ++n) {
        const float left = b[(8 * n + 2 * t) * T::kStride + k], right = b[(8 * n + 2 * t + 1) * T::kStride + k];
        sum[n][0] += upper * left;
        sum[n][1] += upper * right;
        sum[n][2] += lower * left;
        sum[n][3] += lower * right;
      }
    }
  } else {
    const int matrix = lane_index() / 8, row = lane_index() % 8;
    const int a_start = (a_row + matrix % 2 * 8 + row) * T::kStride + matrix / 2 * 8;
    const int b_start = (matrix / 2 * 8 + row) * T::kStride + matrix % 2 * 8;
    for (int k = 0; k < T::kDim; k += 16) {
      uint32_t left[4];
      load_matrices<false>(left, a, a_start + k);
      SHARDLINE_UNROLLED
      for (int n = 0; n < T::kColumns / 8; n += 2) {
        uint32_t right[4];
        load_matrices<false>(right, b, b_start + 8 * n * T::kStride + k);
        multiply_add<S>(sum[n], left, right[0], right[1]);
        multiply_add<S>(sum[n + 1], left, right[2], right[3]);
      }
    }
  }
}

// sum [16, kDim] += left [16, kColumns] times the first kColumns rows of b. In half precision, left is rounded first.
template <class T, class S>
SHARDLINE_DEVICE void multiply_columns(float (&sum)[T::kDim / 8][4], const float (&left)[T::kColumns / 8][4],
                                       const SharedArray<S>& b) {
  if constexpr (std::is_same_v<S, float>) {
    const int t = lane_index() % 4;
    SHARDLINE_UNROLLED
    for (int n = 0; n < T::kColumns / 8; ++n) SHARDLINE_UNROLLED
    for (int k = 0; k < 8; ++k) {
      const int holder = lane_index() / 4 * 4 + k / 2;
      const float upper = shuffle(left[n][k % 2], holder), lower = shuffle(left[n][2 + k % 2], holder);
      SHARDLINE_UNROLLED
      for (int d = 0; d < T::kDim / 8; ++d) {
        const float first = b[(8 * n + k) * T::kStride + 8 * d + 2 * t];
        const float second = b[(8 * n + k) * T::kStride + 8 * d + 2 * t + 1];
        sum[d][0] += upper * first;
        sum[d][1] += upper * second;
        sum[d][2] += lower * first;
        sum[d][3] += lower * second;
      }
    }
  } else {
    const int matrix = lane_index() / 8, row = lane_index() % 8;
    const int b_start = (matrix % 2 * 8 + row) * T::kStride + matrix / 2 * 8;
    SHARDLINE_UNROLLED
    for (int n = 0; n < T::kColumns / 8; n += 2) {
      const uint32_t rounded[4] = {pack_two<S>(left[n][0], left[n][1]), pack_two<S>(left[n][2], left[n][3]),
                                   pack_two<S>(left[n + 1][0], left[n + 1][1]),
                                   pack_two<S>(left[n + 1][2], left[n + 1][3])};
      SHARDLINE_UNROLLED
      for (int d = 0; d < T::kDim / 8; d += 2) {
        uint32_t right[4];
        load_matrices<true>(right, b, b_start + 8 * n * T::kStride + 8 * d);
        multiply_add<S>(sum[d], rounded, right[0], right[1]);
        multiply_add<S>(sum[d + 1], rounded, right[2], right[3]);
      }
    }
  }
}

// Stores factor * sum to rows first to first + 15 of a head.
template <class T, class S>
SHARDLINE_DEVICE void store_rows(S* head, int64_t token_stride, int64_t first, const float (&sum)[T::kDim / 8][4],
                                 float upper_factor, float lower_factor, const AttentionSizes& sizes) {
  const int g = lane_index() / 4, t = lane_index() % 4;
  SHARDLINE_UNROLLED
  for (int d = 0; d < T::kDim / 8; ++d) SHARDLINE_UNROLLED
  for (int i = 0; i < 4; ++i) {
    const int64_t row = first + g + i / 2 * 8, column = 8 * d + 2 * t + i % 2;
    if (row < sizes.length && column < sizes.head_dim)
      head[row * token_stride + column] = stored<S>(sum[d][i] * (i < 2 ? upper_factor : lower_factor));
  }
}

// The dropout mask of one head. Four neighbouring keys of a query share a block of random words. Of the four blocks
// that a group of four lanes needs, each lane computes one, and the lanes exchange the results.
class HeadMask {
 public:
  SHARDLINE_DEVICE HeadMask(const AttentionSizes& sizes, int64_t batch, int64_t head)
      : drops_(sizes.drops),
        aligned_(sizes.max_positions % 4 == 0),
        words_(stream_words(sizes.seed, sizes.op, sizes.step,
                            sizes.drops ? static_cast<uint32_t>(sizes.samples[batch]) : 0)),
        limit_(sizes.limit),
        first_row_((sizes.first_head + head) * sizes.max_positions),
        max_positions_(sizes.max_positions),
        kept_scale_(drops_ ? sizes.kept_scale : 1.0f) {}

  SHARDLINE_DEVICE float kept_scale() const { return kept_scale_; }

  // Returns the mask of this lane's elements in kEights times eight columns: bit 4 n + i is 1 if element i of the n-th
  // eight is kept. Rows are queries and columns are keys, beginning with `query` and `key`.
  template <int kEights>
  SHARDLINE_DEVICE uint32_t of_queries(int64_t query, int64_t key) const {
    uint32_t kept = 0;
    for (int n = 0; n < kEights; ++n) kept |= eight_of_queries(query, key + 8 * n) << (4 * n);
    return kept;
  }
  // Returns the mask if keys are rows and queries are columns.
  template <int kEights>
  SHARDLINE_DEVICE uint32_t of_keys(int64_t key, int64_t query) const {
    uint32_t kept = 0;
    for (int n = 0; n < kEights; ++n) kept |= eight_of_keys(key, query + 8 * n) << (4 * n);
    return kept;
  }

 private:
  SHARDLINE_DEVICE uint32_t eight_of_queries(int64_t query, int64_t key) const {
    if (!drops_) return 0xf;
    const int g = lane_index() / 4, t = lane_index() % 4;
    if (!aligned_) return one_by_one(query + g, 8, key + 2 * t, 0, 1);
    const uint32_t all = exchanged(four(query + g + t % 2 * 8, key + t / 2 * 4), t, 1);
    const uint32_t mine = all >> (t / 2 * 8);  // the bits of rows g and g + 8
    return (mine >> (t % 2 * 2) & 3u) | (mine >> (4 + t % 2 * 2) & 3u) << 2;
  }

  SHARDLINE_DEVICE uint32_t eight_of_keys(int64_t key, int64_t query) const {
    if (!drops_) return 0xf;
    const int g = lane_index() / 4, t = lane_index() % 4;
    if (!aligned_) return one_by_one(query + 2 * t, 0, key + g, 8, 0);
    const int turn = g % 4;
    const uint32_t all = exchanged(four(query + 2 * t + turn % 2, key + turn / 2 * 8 + g / 4 * 4), turn, 4);
    const uint32_t mine = all >> turn;
    return (mine & 1u) | (mine >> 4 & 1u) << 1 | (mine >> 8 & 1u) << 2 | (mine >> 12 & 1u) << 3;
  }

  SHARDLINE_DEVICE uint64_t element(int64_t query, int64_t key) const {
    return static_cast<uint64_t>((first_row_ + query) * max_positions_ + key);
  }
  SHARDLINE_DEVICE uint32_t four(int64_t query, int64_t key) const {
    const PhiloxBlock block = words_.block(element(query, key) / 4);
    uint32_t kept = 0;
    SHARDLINE_UNROLLED
    for (int i = 0; i < 4; ++i) kept |= static_cast<uint32_t>(block.word[i] < limit_) << i;
    return kept;
  }
  // Returns the bits of the four lanes that are `stride` apart, in the order of their turns.
  SHARDLINE_DEVICE uint32_t exchanged(uint32_t mine, int turn, int stride) const {
    uint32_t all = mine << (4 * turn);
    all |= shuffle_xor(all, stride);
    return all | shuffle_xor(all, 2 * stride);
  }
  // Elements 2 and 3 are query_step queries and key_step keys after elements 0 and 1. Elements 1 and 3 belong to the
  // next key if next_key is 1, otherwise to the next query.
  SHARDLINE_DEVICE uint32_t one_by_one(int64_t query, int query_step, int64_t key, int key_step, int next_key) const {
    uint32_t kept = 0;
    SHARDLINE_UNROLLED
    for (int i = 0; i < 4; ++i) {
      const uint64_t e =
          element(query + i / 2 * query_step + i % 2 * (1 - next_key), key + i / 2 * key_step + i % 2 * next_key);
      kept |= static_cast<uint32_t>(words_.block(e / 4).word[e % 4] < limit_) << i;
    }
    return kept;
  }

  bool drops_, aligned_;
  StreamWords words_;
  uint64_t limit_;
  int64_t first_row_, max_positions_;
  float kept_scale_;
};

// Calls run(Tiling<S, dim>{}) with the narrowest tiles that hold a head.
template <class S, class Run>
void with_tiling(int64_t head_dim, const Run& run) {
  if (head_dim <= 64) return run(Tiling<S, 64>{});
  run(Tiling<S, kWidestHead>{});
}

AttentionSizes sizes_of(const AttentionCase& c, bool packed);
// Whether these rows can be read 16 bytes at a time.
bool read_packed(const AttentionCase& c, int64_t number_bytes, const HeadRows* rows, int count);

}  // namespace shardline::cuda
