#include "tensor_parallel/kernels/cuda/cuda_launches.h"
#include "tensor_parallel/kernels/cuda/number_dispatch.h"
#include "tensor_parallel/kernels/cuda/row_blocks.h"

namespace shardline::cuda {
namespace {

constexpr int kPartStripes = 8, kRowStripes = 32;  // warps per block

// total[column] += the sum of x's column, for the columns of a block. Each warp adds every kStripes-th row; the warps'
// sums are added in warp order.
template <int kStripes, class S>
SHARDLINE_DEVICE void add_columns(const S* x, int64_t rows, int64_t stride, int64_t n, float* total) {
  SharedRoom room;
  const auto stripes = room.take<float>(kStripes * kWarp);
  const int64_t column = block_x() * kWarp + lane_index();
  float sum = 0;
  if (column < n)
    for (int64_t row = warp_index(); row < rows; row += kStripes) sum += number(x[row * stride + column]);
  stripes[thread_index()] = sum;
  sync_block();
  if (warp_index() > 0 || column >= n) return;
  float all = 0;
  for (int stripe = 0; stripe < kStripes; ++stripe) all += stripes[stripe * kWarp + lane_index()];
  total[column] += all;
}

SHARDLINE_KERNEL(kPartStripes* kWarp, add_parts, PartSums a) {
  add_columns<kPartStripes>(a.part[block_y()], a.blocks, a.n, a.n, a.total[block_y()]);
}

template <class S>
SHARDLINE_KERNEL(kRowStripes* kWarp, add_rows, ColumnSums a) {
  add_columns<kRowStripes>(static_cast<const S*>(a.x), a.rows, a.row_stride, a.n, a.total);
}

}  // namespace

int64_t part_floats(int64_t rows, int64_t n) {
  return RowCut(rows).blocks * n;
}

void add_part_sums(const PartSums& a, Stream stream) {
  PartSums wanted{{}, {}, a.blocks, a.n};
  int count = 0;
  for (int i = 0; i < 2; ++i)
    if (a.total[i] != nullptr) {
      wanted.part[count] = a.part[i];
      wanted.total[count++] = a.total[i];
    }
  const int64_t floats = count * a.n;
  launch({.kernel = "add_part_sums",
          .blocks_x = (a.n + kWarp - 1) / kWarp,
          .blocks_y = count,
          .threads = kPartStripes * kWarp,
          .shared_bytes = kPartStripes * kWarp * sizeof(float),
          .bytes_read = 4 * floats * (a.blocks + 1),
          .bytes_written = 4 * floats},
         stream, add_parts, wanted);
}

void add_column_sums(const ColumnSums& a, Number type, Stream stream) {
  if (a.rows == 0) return;
  with_number(type, [&]<class S>(S) {
    launch({.kernel = "add_column_sums",
            .blocks_x = (a.n + kWarp - 1) / kWarp,
            .threads = kRowStripes * kWarp,
            .shared_bytes = kRowStripes * kWarp * sizeof(float),
            .bytes_read = a.rows * a.n * bytes_of(type) + 4 * a.n,
            .bytes_written = 4 * a.n},
           stream, add_rows<S>, a);
  });
}

}  // namespace shardline::cuda
