// Building blocks of the attention kernels: tiles of a head's rows in shared memory, and the products that warps
// compute from them. A warp computes sets of 16 rows of a matrix. For every set and every eight columns, lane L holds
// the elements (g, 2t), (g, 2t + 1), (g + 8, 2t) and (g + 8, 2t + 1), where g = L / 4 and t = L % 4: the arrangement in
// which tensor cores return products. fp32 products, which do not use tensor cores, have the same arrangement.
#pragma once
#include <type_traits>

#include "core/cuda/launch.h"
#include "core/cuda/tensor_cores.h"
#include "tensor_parallel/kernels/cuda/cuda_launches.h"

namespace shardline::cuda {

constexpr float kLog2E = 1.44269504088896340736f, kLn2 = 0.69314718055994530942f;

// The maximum shared memory of a block on GPUs of compute capability 8.6 and 8.9 (CUDA C++ Programming Guide,
// "Technical Specifications per Compute Capability"); others from 8.0 on allow more.
constexpr size_t kMostSharedBytes = 99 * 1024;

// The sizes of tiles whose rows have up to kDim features. A block computes kRows queries, or in key_gradients kKeyRows
// keys, and processes kColumns rows of the other matrix at a time.
template <class S, int kDim_>
struct Tiling {
  static constexpr int kDim = kDim_;
  static constexpr bool kHalf = sizeof(S) == 2;
  static constexpr int kWarps = sizeof(S) * kDim <= 512 ? 4 : 2;
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kRows = 16 * kWarps;
  static constexpr int kColumns = kDim <= 64 ? 64 : 32;
  // The sets of 16 keys per warp in key_gradients. With two sets, half as many columns are read from shared memory per
  // product, but the gradients of wider heads would not fit in registers.
  static constexpr int kKeySets = kHalf && kDim <= 64 ? 2 : 1;
  static constexpr int kKeyRows = kKeySets * kRows;
  static constexpr int kChunk = kHalf ? 32 : kColumns;  // columns whose gradients a warp computes at a time
  // With two, the next tile is copied during the computation; fp32 tiles leave no shared memory for a second one.
  static constexpr int kBuffers = kHalf ? 2 : 1;
  static constexpr int kPack = 16 / sizeof(S);
  static constexpr int kStride = kDim + kPack;  // between rows in shared memory, which thus begin in different banks
  static constexpr int kQuerySums = kHalf ? 2 * kColumns : 0;  // stored with a tile of queries in shared memory

  static constexpr size_t bytes_of_rows(int rows) { return rows * kStride * sizeof(S); }
  static constexpr size_t kColumnBytes = bytes_of_rows(2 * kBuffers * kColumns);
  static constexpr size_t kForwardBytes = bytes_of_rows(kRows) + kColumnBytes;
  static constexpr size_t kQueryBytes = bytes_of_rows(2 * kRows) + kColumnBytes;
  static constexpr size_t kKeyBytes =
      bytes_of_rows(2 * kKeyRows) + kColumnBytes + kBuffers * kQuerySums * sizeof(float);
  static_assert(kForwardBytes <= kMostSharedBytes && kQueryBytes <= kMostSharedBytes && kKeyBytes <= kMostSharedBytes);
};

// The arguments of a launch, passed by value.
struct AttentionSizes {
  int64_t heads = 0, length = 0;
  int head_dim = 0;
  float scale = 1;
  bool packed = false;  // rows can be read 16 bytes at a time
  bool paired = false;  // rows can be written two numbers at a time
  bool drops = false;
  float kept_scale = 1;
  uint32_t limit = 0;  // elements whose word is below it are kept
  uint64_t seed = 0;
  PhiloxKeys keys = {};  // from the seed; GPUs read them from the launch's arguments as they compute
  uint32_t op = 0, step = 0;
  int64_t first_head = 0, max_positions = 0;
  const int64_t* samples = nullptr;
};

// The head of a block. Heads are the blocks' first index, so blocks of all heads start in the order of their second
// index, those with most work first.
struct Head {
  SHARDLINE_DEVICE explicit Head(const AttentionSizes& sizes)
      : index(block_x()), batch(index / sizes.heads), head(index % sizes.heads) {}

  template <class S>
  SHARDLINE_DEVICE S* start(const HeadRows& rows) const {
    return static_cast<S*>(rows.data) + batch * rows.batch_stride + head * rows.head_stride;
  }

  int64_t index, batch, head;
};

// The orders in which a tile holds rows of a matrix. If rows are keys, each lane has whole groups of four adjacent keys
// (or of two with one set of rows), because four share a block of random words.
struct InOrder {
  static SHARDLINE_DEVICE int place(int row) { return row; }
};
// If keys are the columns of scores: element i of the n-th group of eight belongs to key `key_of(n, i)` of the tile.
struct KeysAsColumns {
  static SHARDLINE_DEVICE int place(int key) { return key / 16 * 16 + key % 4 / 2 * 8 + key % 16 / 4 * 2 + key % 2; }
  static SHARDLINE_DEVICE int key_of(int n, int i) { return n / 2 * 16 + lane_index() % 4 * 4 + n % 2 * 2 + i % 2; }
};
// If keys are the rows of the scores: element i of a set belongs to key `key_of(set, i)` of the warp.
template <int kSets>
struct KeysAsRows {
  static SHARDLINE_DEVICE int place(int key) {
    constexpr int kTogether = 2 * kSets, kRows = 16 * kSets;
    return key / kRows * kRows + key % kTogether * 8 + key % kRows / kTogether;
  }
  static SHARDLINE_DEVICE int key_of(int set, int i) { return lane_index() / 4 * (2 * kSets) + 2 * set + i / 2; }
};

// Reads up to kPack numbers of a row from `column` on; the rest is zero.
template <int kPack, class S>
SHARDLINE_DEVICE Pack<S, kPack> read_pack(const S* row, int column, const AttentionSizes& sizes) {
  Pack<S, kPack> pack{};
  if (sizes.packed) {
    if (column < sizes.head_dim) pack = load<kPack>(row + column);
  } else {
    for (int j = 0; j < kPack; ++j)
      if (column + j < sizes.head_dim) pack.value[j] = row[column + j];
  }
  return pack;
}

// The rows of one matrix of a head, as a block loads them: each thread loads the same features of every few rows.
template <class T, class Order, class S>
class RowSource {
 public:
  SHARDLINE_DEVICE RowSource(const HeadRows& rows, const Head& head)
      : from_(head.start<const S>(rows) + row() * rows.token_stride), stride_(rows.token_stride) {}

  // Starts to load rows first to first + kRows - 1 into a tile; see start_copy. Rows that do not exist and features
  // beyond the head's are zero.
  template <int kRows>
  SHARDLINE_DEVICE void start(const SharedArray<S>& tile, int64_t first, const AttentionSizes& sizes) const {
    static_assert((kRowsAtOnce & (kRowsAtOnce - 1)) == 0 && kRows % kRowsAtOnce == 0);
    const int column = thread_index() % kPacks * T::kPack;
    const int64_t rest = sizes.length - first - row();
    const int rows = rest < kRows ? rest : kRows;  // existing rows, from this thread's first on
    const S* from = from_ + first * stride_;
    // Orders permute the bits of a row number; row() and i have no bits in common.
    const int first_place = Order::place(row()) * T::kStride + column;
    const auto place = [&](int i) { return first_place + Order::place(i) * T::kStride; };
    if (sizes.packed) {
      const int copied = column < sizes.head_dim ? rows : 0;
      SHARDLINE_UNROLLED
      for (int i = 0; i < kRows; i += kRowsAtOnce) {
        start_copy<T::kPack>(tile, place(i), from + column, i < copied);
        from += kRowsAtOnce * stride_;
      }
    } else {
      SHARDLINE_ROLLED
      for (int i = 0; i < kRows; i += kRowsAtOnce) {
        store<T::kPack>(tile, place(i), i < rows ? read_pack<T::kPack>(from, column, sizes) : Pack<S, T::kPack>{});
        from += kRowsAtOnce * stride_;
      }
    }
  }

 private:
  static constexpr int kPacks = T::kDim / T::kPack, kRowsAtOnce = T::kThreads / kPacks;
  static SHARDLINE_DEVICE int row() { return thread_index() / kPacks; }

  const S* from_;
  int64_t stride_;
};

// Tiles of kRows rows of two matrices of a head that are loaded together: queries and gradients of results, or keys and
// values.
template <class T, int kRows, int kBuffers, class Order, class S>
class TilePair {
 public:
  SHARDLINE_DEVICE TilePair(SharedRoom& room, const HeadRows& first, const HeadRows& second, const Head& head)
      : tiles_(room.take<S>(2 * kBuffers * kTile)), first_(first, head), second_(second, head) {}

  SHARDLINE_DEVICE void start(int64_t row, int buffer, const AttentionSizes& sizes) const {
    first_.template start<kRows>(first_tile(buffer), row, sizes);
    second_.template start<kRows>(second_tile(buffer), row, sizes);
  }
  SHARDLINE_DEVICE SharedArray<S> first_tile(int buffer) const { return tiles_.part(2 * buffer * kTile, kTile); }
  SHARDLINE_DEVICE SharedArray<S> second_tile(int buffer) const { return tiles_.part((2 * buffer + 1) * kTile, kTile); }

 private:
  static constexpr int kTile = kRows * T::kStride;

  SharedArray<S> tiles_;
  RowSource<T, Order, S> first_, second_;
};

// Calls use(row, buffer) for every tile of kColumns rows between `first` and `end`, once the rows loaded by start(row,
// buffer) have arrived. With two buffers, a tile is loaded while the previous one is used. Calls prepare() once before
// the first use, when everything that the caller started to load earlier has arrived.
template <class T, class Start, class Prepare, class Use>
SHARDLINE_DEVICE void for_each_tile(int64_t first, int64_t end, const Start& start, const Prepare& prepare,
                                    const Use& use) {
  if constexpr (T::kBuffers == 2) start(first, 0);
  wait_for_copies();
  sync_block();
  prepare();
  int buffer = 0;
  for (int64_t row = first; row < end; row += T::kColumns) {
    if constexpr (T::kBuffers == 1) {
      sync_block();  // no warp needs the previous tile any longer
      start(row, 0);
    }
    wait_for_copies();
    sync_block();  // all copies have arrived, and no warp needs the previous tile any longer
    if constexpr (T::kBuffers == 2) {
      if (row + T::kColumns < end) start(row + T::kColumns, 1 - buffer);
    }
    use(row, buffer);
    buffer = T::kBuffers - 1 - buffer;
  }
}

// 16 * kSets rows of a tile, from first_row on, that a warp multiplies with columns. If kHeld, tensor cores read them
// from registers, which hold() fills; otherwise from shared memory.
template <class T, class S, int kSets, bool kHeld>
class WarpRows {
 public:
  SHARDLINE_DEVICE WarpRows(const SharedArray<S>& tile, int first_row) : tile_(tile), first_row_(first_row) {}

  SHARDLINE_DEVICE void hold() {
    if constexpr (kHeld) {
      SHARDLINE_UNROLLED
      for (int set = 0; set < kSets; ++set) SHARDLINE_UNROLLED
      for (int k = 0; k < T::kDim; k += 16) load(held_[set][k / 16], set, k);
    }
  }
  // The operand of multiply_add with features k to k + 15.
  SHARDLINE_DEVICE void operand(uint32_t (&registers)[4], int set, int k) const {
    if constexpr (kHeld) {
      SHARDLINE_UNROLLED
      for (int i = 0; i < 4; ++i) registers[i] = held_[set][k / 16][i];
    } else {
      load(registers, set, k);
    }
  }
  SHARDLINE_DEVICE S element(int row, int k) const { return tile_[(first_row_ + row) * T::kStride + k]; }

 private:
  SHARDLINE_DEVICE void load(uint32_t (&registers)[4], int set, int k) const {
    const int matrix = lane_index() / 8, row = lane_index() % 8;
    const int start = (first_row_ + matrix % 2 * 8 + row) * T::kStride + matrix / 2 * 8;
    load_matrices<false>(registers, tile_, start + 16 * set * T::kStride + k);
  }

  SharedArray<S> tile_;
  int first_row_;
  uint32_t held_[kHeld ? kSets : 1][kHeld ? T::kDim / 16 : 1][4];
};

// sum += rows of a times the transposed rows of b from b_row on.
template <class T, class S, int kSets, bool kHeld, int kEights>
SHARDLINE_DEVICE void multiply_rows(float (&sum)[kSets][kEights][4], const WarpRows<T, S, kSets, kHeld>& a,
                                    const SharedArray<S>& b, int b_row) {
  if constexpr (std::is_same_v<S, float>) {
    static_assert(kSets == 1);
    const int g = lane_index() / 4, t = lane_index() % 4;
    for (int k = 0; k < T::kDim; ++k) {
      const float upper = a.element(g, k), lower = a.element(g + 8, k);
      SHARDLINE_UNROLLED
      for (int n = 0; n < kEights; ++n) {
        const int row = b_row + 8 * n + 2 * t;
        const float left = b[row * T::kStride + k], right = b[(row + 1) * T::kStride + k];
        sum[0][n][0] += upper * left;
        sum[0][n][1] += upper * right;
        sum[0][n][2] += lower * left;
        sum[0][n][3] += lower * right;
      }
    }
  } else {
    const int matrix = lane_index() / 8, row = lane_index() % 8;
    const int b_start = (b_row + matrix / 2 * 8 + row) * T::kStride + matrix % 2 * 8;
    SHARDLINE_UNROLLED
    for (int k = 0; k < T::kDim; k += 16) {
      uint32_t left[kSets][4];
      SHARDLINE_UNROLLED
      for (int set = 0; set < kSets; ++set) a.operand(left[set], set, k);
      SHARDLINE_UNROLLED
      for (int n = 0; n < kEights; n += 2) {
        uint32_t right[4];
        load_matrices<false>(right, b, b_start + 8 * n * T::kStride + k);
        SHARDLINE_UNROLLED
        for (int set = 0; set < kSets; ++set) {
          multiply_add<S>(sum[set][n], left[set], right[0], right[1]);
          multiply_add<S>(sum[set][n + 1], left[set], right[2], right[3]);
        }
      }
    }
  }
}

// sum += left times the rows of b from b_row on. In half precision, left is rounded first.
template <class T, class S, int kSets, int kEights>
SHARDLINE_DEVICE void multiply_columns(float (&sum)[kSets][T::kDim / 8][4], const float (&left)[kSets][kEights][4],
                                       const SharedArray<S>& b, int b_row) {
  if constexpr (std::is_same_v<S, float>) {
    static_assert(kSets == 1);
    const int t = lane_index() % 4;
    SHARDLINE_UNROLLED
    for (int n = 0; n < kEights; ++n) SHARDLINE_UNROLLED
    for (int k = 0; k < 8; ++k) {
      const int holder = lane_index() / 4 * 4 + k / 2;
      const float upper = shuffle(left[0][n][k % 2], holder), lower = shuffle(left[0][n][2 + k % 2], holder);
      SHARDLINE_UNROLLED
      for (int d = 0; d < T::kDim / 8; ++d) {
        const int place = (b_row + 8 * n + k) * T::kStride + 8 * d + 2 * t;
        const float first = b[place], second = b[place + 1];
        sum[0][d][0] += upper * first;
        sum[0][d][1] += upper * second;
        sum[0][d][2] += lower * first;
        sum[0][d][3] += lower * second;
      }
    }
  } else {
    const int matrix = lane_index() / 8, row = lane_index() % 8;
    const int b_start = (b_row + matrix % 2 * 8 + row) * T::kStride + matrix / 2 * 8;
    SHARDLINE_UNROLLED
    for (int n = 0; n < kEights; n += 2) {
      uint32_t rounded[kSets][4];
      SHARDLINE_UNROLLED
      for (int set = 0; set < kSets; ++set) SHARDLINE_UNROLLED
      for (int i = 0; i < 4; ++i) {
        const auto& eight = left[set][n + i / 2];
        rounded[set][i] = pack_two<S>(eight[i % 2 * 2], eight[i % 2 * 2 + 1]);
      }
      SHARDLINE_UNROLLED
      for (int d = 0; d < T::kDim / 8; d += 2) {
        uint32_t right[4];
        load_matrices<true>(right, b, b_start + 8 * n * T::kStride + 8 * d);
        SHARDLINE_UNROLLED
        for (int set = 0; set < kSets; ++set) {
          multiply_add<S>(sum[set][d], rounded[set], right[0], right[1]);
          multiply_add<S>(sum[set][d + 1], rounded[set], right[2], right[3]);
        }
      }
    }
  }
}

// Stores factor[half] * sum to row[half] of a head: elements 0 and 1 to row[0], the others to row[1].
template <class T, class S>
SHARDLINE_DEVICE void store_rows(S* head, int64_t token_stride, const int64_t (&row)[2],
                                 const float (&sum)[T::kDim / 8][4], const float (&factor)[2],
                                 const AttentionSizes& sizes) {
  SHARDLINE_UNROLLED
  for (int half = 0; half < 2; ++half) {
    if (row[half] >= sizes.length) continue;
    S* const to = head + row[half] * token_stride;
    SHARDLINE_UNROLLED
    for (int d = 0; d < T::kDim / 8; ++d) {
      const int column = 8 * d + lane_index() % 4 * 2;
      const S left = stored<S>(sum[d][2 * half] * factor[half]), right = stored<S>(sum[d][2 * half + 1] * factor[half]);
      if (sizes.paired) {
        if (column < sizes.head_dim) store<2>(to + column, Pack<S, 2>{left, right});
      } else {
        if (column < sizes.head_dim) to[column] = left;
        if (column + 1 < sizes.head_dim) to[column + 1] = right;
      }
    }
  }
}

// Calls run(Tiling<S, dim>{}) with the narrowest tiles that fit the head.
template <class S, class Run>
void with_tiling(int64_t head_dim, const Run& run) {
  if (head_dim <= 64) return run(Tiling<S, 64>{});
  run(Tiling<S, kWidestHead>{});
}

}  // namespace shardline::cuda
