#include "tensor_parallel/kernels/cuda/cuda_launches.h"
#include "tensor_parallel/kernels/cuda/number_dispatch.h"
#include "tensor_parallel/kernels/cuda/row_blocks.h"

namespace shardline::cuda {
namespace {

constexpr int kThreads = 256;  // per row

// The maximum of some logits, and the sum of exp(logit - largest).
struct Stats {
  float largest, sum;
};

SHARDLINE_DEVICE Stats joined(const Stats& a, const Stats& b) {
  const float largest = b.largest > a.largest ? b.largest : a.largest;
  const float shift = largest == -INFINITY ? 0.0f : largest;
  return {largest, a.sum * expf(a.largest - shift) + b.sum * expf(b.largest - shift)};
}

// Calls visit(column, pack) for this thread's columns: kV at a time, and the last v % kV of the row one by one.
template <int kV, class S, class Visit>
SHARDLINE_DEVICE void for_columns(const S* row, int64_t v, const Visit& visit) {
  const int64_t in_packs = v / kV * kV;
  for (int64_t i = thread_index() * kV; i < in_packs; i += kThreads * kV) visit(i, load<kV>(row + i));
  const int64_t last = in_packs + thread_index();
  if (last < v) visit(last, load<1>(row + last));
}

// Computes the stats of the block's row; all its threads get them.
template <int kV, class S>
SHARDLINE_DEVICE Stats stats_of_row(SharedRoom& room, const S* row, int64_t v) {
  Stats mine{-INFINITY, 0};
  for_columns<kV>(row, v, [&]<int kCount>(int64_t, const Pack<S, kCount>& pack) {
    float top = mine.largest, sum = 0;
    SHARDLINE_UNROLLED
    for (int j = 0; j < kCount; ++j) {
      const float logit = number(pack.value[j]);
      top = logit > top ? logit : top;
    }
    const float shift = top == -INFINITY ? 0.0f : top;
    SHARDLINE_UNROLLED
    for (int j = 0; j < kCount; ++j) sum += expf(number(pack.value[j]) - shift);
    mine = {top, mine.sum * expf(mine.largest - shift) + sum};
  });
  SHARDLINE_UNROLLED
  for (int other = kWarp / 2; other > 0; other /= 2)
    mine = joined(mine, {shuffle_xor(mine.largest, other), shuffle_xor(mine.sum, other)});
  const auto largest = room.take<float>(kThreads / kWarp), sum = room.take<float>(kThreads / kWarp);
  if (lane_index() == 0) {
    largest[warp_index()] = mine.largest;
    sum[warp_index()] = mine.sum;
  }
  sync_block();
  Stats all{largest[0], sum[0]};
  for (int warp = 1; warp < kThreads / kWarp; ++warp) all = joined(all, {largest[warp], sum[warp]});
  return all;
}

// Replaces logits by (softmax - onehot(label)) * scale; label -1: not in the row.
template <int kV, class S>
SHARDLINE_DEVICE void gradient_of_row(S* row, int64_t v, int64_t label, float log_sum_exp, float scale) {
  for_columns<kV>(row, v, [&]<int kCount>(int64_t i, Pack<S, kCount> pack) {
    SHARDLINE_UNROLLED
    for (int j = 0; j < kCount; ++j) {
      const float probability = scale != 0 ? expf(number(pack.value[j]) - log_sum_exp) : 0.0f;
      pack.value[j] = stored<S>((i + j == label ? probability - 1.0f : probability) * scale);
    }
    store<kCount>(row + i, pack);
  });
}

template <int kV, class S>
SHARDLINE_KERNEL(kThreads, cross_entropy_rows, CrossEntropyStats a) {
  SharedRoom room;
  const int64_t row = block_x();
  const S* logits = static_cast<const S*>(a.logits) + row * a.row_stride;
  const Stats stats = stats_of_row<kV>(room, logits, a.v);
  if (thread_index() > 0) return;
  const int64_t label = a.label[row];
  a.largest[row] = stats.largest;
  a.sum[row] = stats.sum;
  a.picked[row] = label >= 0 && label < a.v ? number(logits[label]) : 0.0f;
}

template <int kV, class S>
SHARDLINE_KERNEL(kThreads, cross_entropy_gradient_rows, CrossEntropyGradient a) {
  const int64_t row = block_x(), label = a.label[row] < a.v ? a.label[row] : -1;
  gradient_of_row<kV>(static_cast<S*>(a.logits) + row * a.row_stride, a.v, label, a.log_sum_exp[row], a.scale[row]);
}

// Both of the above for a vocabulary that is not split, with one pass over memory: the gradient finds the row in
// cache.
template <int kV, class S>
SHARDLINE_KERNEL(kThreads, cross_entropy_whole_rows, WholeCrossEntropy a) {
  SharedRoom room;
  const int64_t row = block_x(), label = a.label[row];
  S* logits = static_cast<S*>(a.logits) + row * a.row_stride;
  const bool counts = label >= 0;
  if (counts) {
    const Stats stats = stats_of_row<kV>(room, logits, a.v);
    const float log_sum_exp = stats.largest + logf(stats.sum);
    if (thread_index() == 0) a.loss[row] = log_sum_exp - number(logits[label]);
    sync_block();  // the label's logit must be read before the gradient replaces it
    if (a.with_gradient) gradient_of_row<kV>(logits, a.v, label, log_sum_exp, a.scale);
  } else {
    if (thread_index() == 0) a.loss[row] = 0;
    if (a.with_gradient) gradient_of_row<kV>(logits, a.v, -1, 0.0f, 0.0f);
  }
}

// Adds up the losses and the number of rows whose label is not negative, in fp64 and always in the same order.
SHARDLINE_KERNEL(kThreads, add_losses, const float* loss, const int64_t* label, double* total, int64_t rows) {
  SharedRoom room;
  const auto sums = room.take<double>(kThreads), counts = room.take<double>(kThreads);
  double sum = 0, count = 0;
  for (int64_t row = thread_index(); row < rows; row += kThreads)
    if (label[row] >= 0) {
      sum += loss[row];
      count += 1;
    }
  sums[thread_index()] = sum;
  counts[thread_index()] = count;
  sync_block();
  if (thread_index() > 0) return;
  sum = count = 0;
  for (int i = 0; i < kThreads; ++i) {
    sum += sums[i];
    count += counts[i];
  }
  total[0] += sum;
  total[1] += count;
}

constexpr size_t kStatsBytes = 2 * 16 * ((kThreads / kWarp * sizeof(float) + 15) / 16);

}  // namespace

void cross_entropy_stats(const CrossEntropyStats& a, Number type, Stream stream) {
  const Launch how{.kernel = "cross_entropy_stats",
                   .blocks_x = a.rows,
                   .threads = kThreads,
                   .shared_bytes = kStatsBytes,
                   .bytes_read = a.rows * (a.v * bytes_of(type) + 8),
                   .bytes_written = 12 * a.rows};
  with_number(type, [&]<class S>(S) {
    if (in_fours(a.row_stride, a.logits))
      launch(how, stream, cross_entropy_rows<4, S>, a);
    else
      launch(how, stream, cross_entropy_rows<1, S>, a);
  });
}

void cross_entropy_gradient(const CrossEntropyGradient& a, Number type, Stream stream) {
  const Launch how{.kernel = "cross_entropy_gradient",
                   .blocks_x = a.rows,
                   .threads = kThreads,
                   .bytes_read = a.rows * (a.v * bytes_of(type) + 16),
                   .bytes_written = a.rows * a.v * bytes_of(type)};
  with_number(type, [&]<class S>(S) {
    if (in_fours(a.row_stride, a.logits))
      launch(how, stream, cross_entropy_gradient_rows<4, S>, a);
    else
      launch(how, stream, cross_entropy_gradient_rows<1, S>, a);
  });
}

void whole_cross_entropy(const WholeCrossEntropy& a, Number type, Stream stream) {
  const int64_t bytes = a.rows * a.v * bytes_of(type);
  const Launch how{.kernel = "whole_cross_entropy",
                   .blocks_x = a.rows,
                   .threads = kThreads,
                   .shared_bytes = kStatsBytes,
                   .bytes_read = bytes + 8 * a.rows,
                   .bytes_written = (a.with_gradient ? bytes : 0) + 4 * a.rows};
  with_number(type, [&]<class S>(S) {
    if (in_fours(a.row_stride, a.logits))
      launch(how, stream, cross_entropy_whole_rows<4, S>, a);
    else
      launch(how, stream, cross_entropy_whole_rows<1, S>, a);
  });
  launch({.kernel = "add_losses",
          .blocks_x = a.rows > 0 ? 1 : 0,
          .threads = kThreads,
          .shared_bytes = 2 * kThreads * sizeof(double),
          .bytes_read = 12 * a.rows,
          .bytes_written = 16},
         stream, add_losses, static_cast<const float*>(a.loss), a.label, a.total, a.rows);
}

}  // namespace shardline::cuda
