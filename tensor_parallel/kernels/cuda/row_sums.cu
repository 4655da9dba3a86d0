#include "tensor_parallel/kernels/cuda/cuda_launches.h"
#include "tensor_parallel/kernels/cuda/row_blocks.h"

namespace shardline::cuda {
namespace {

constexpr int kStripes = 8;  // each adds every eighth part; their sums are added in the stripes' order

SHARDLINE_KERNEL add_parts(PartSums a) {
  SharedRoom room;
  const auto stripes = room.take<float>(kStripes * kWarp);
  const float* part = a.part[block_y()];
  const int64_t column = block_x() * kWarp + lane_index();
  float sum = 0;
  if (column < a.n)
    for (int64_t i = warp_index(); i < a.blocks; i += kStripes) sum += part[i * a.n + column];
  stripes[thread_index()] = sum;
  sync_block();
  if (warp_index() > 0 || column >= a.n) return;
  float all = 0;
  for (int stripe = 0; stripe < kStripes; ++stripe) all += stripes[stripe * kWarp + lane_index()];
  a.total[block_y()][column] += all;
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
          .threads = kStripes * kWarp,
          .shared_bytes = kStripes * kWarp * sizeof(float),
          .bytes_read = 4 * floats * (a.blocks + 1),
          .bytes_written = 4 * floats},
         stream, add_parts, wanted);
}

}  // namespace shardline::cuda
