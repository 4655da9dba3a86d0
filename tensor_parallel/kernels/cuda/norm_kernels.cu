#include <stdexcept>

#include "tensor_parallel/kernels/cuda/cuda_launches.h"
#include "tensor_parallel/kernels/cuda/number_dispatch.h"
#include "tensor_parallel/kernels/cuda/row_blocks.h"

namespace shardline::cuda {
namespace {

constexpr int kForwardWarps = 4;    // per block, one row each
constexpr int kMostThreads = 1024;  // per block in the backward pass

// W: number type of the layer, X: of the residual stream. kV numbers are read at once. The second and third pass over a
// row find it in cache.
template <int kV, class W, class X>
SHARDLINE_KERNEL(kForwardWarps* kWarp, norm_rows, NormForward a) {
  const int64_t row = block_x() * kForwardWarps + warp_index();
  if (row >= a.rows) return;
  const X* x = static_cast<const X*>(a.x) + row * a.n;
  W* y = static_cast<W*>(a.y) + row * a.n;
  const W *weight = static_cast<const W*>(a.weight), *bias = static_cast<const W*>(a.bias);
  const int64_t first = lane_index() * kV, step = kWarp * kV;
  const float count = a.n;
  float mean = 0;
  if (a.mean != nullptr) {
    float sum = 0;
    for (int64_t i = first; i < a.n; i += step) {
      const Pack<X, kV> numbers = load<kV>(x + i);
      SHARDLINE_UNROLLED
      for (int j = 0; j < kV; ++j) sum += number(numbers.value[j]);
    }
    mean = warp_sum(sum) / count;
  }
  float square = 0;
  for (int64_t i = first; i < a.n; i += step) {
    const Pack<X, kV> numbers = load<kV>(x + i);
    SHARDLINE_UNROLLED
    for (int j = 0; j < kV; ++j) {
      const float centred = number(numbers.value[j]) - mean;
      square += centred * centred;
    }
  }
  const float rstd = 1.0f / sqrtf(warp_sum(square) / count + a.epsilon);
  for (int64_t i = first; i < a.n; i += step) {
    const Pack<X, kV> numbers = load<kV>(x + i);
    const Pack<W, kV> scale = load<kV>(weight + i);
    Pack<W, kV> shift{}, result;
    if (bias != nullptr) shift = load<kV>(bias + i);
    SHARDLINE_UNROLLED
    for (int j = 0; j < kV; ++j)
      result.value[j] =
          stored<W>((number(numbers.value[j]) - mean) * rstd * number(scale.value[j]) + number(shift.value[j]));
    store<kV>(y + i, result);
  }
  if (lane_index() > 0) return;
  if (a.mean != nullptr) a.mean[row] = mean;
  a.rstd[row] = rstd;
}

// A block processes every blocks_x()-th row. A thread has the same columns of each: kGroups times kV adjacent ones.
template <int kV, int kGroups, class W, class X>
SHARDLINE_KERNEL(kMostThreads, norm_gradient_rows, NormBackward a) {
  SharedRoom room;
  const int warps = block_threads() / kWarp;
  const auto sums = room.take<float>(2 * 2 * kWarp);  // for two rows in turn, so that a row needs only one barrier
  const W *weight = static_cast<const W*>(a.weight), *all_dy = static_cast<const W*>(a.dy);
  const X* all_x = static_cast<const X*>(a.x);
  X* all_dx = static_cast<X*>(a.dx);
  const float count = a.n;
  float weight_sum[kGroups][kV] = {}, bias_sum[kGroups][kV] = {};
  int turn = 0;
  for (int64_t row = block_x(); row < a.rows; row += blocks_x(), turn ^= 1) {
    const float mean = a.mean != nullptr ? a.mean[row] : 0.0f, rstd = a.rstd[row];
    float normed[kGroups][kV], scaled[kGroups][kV];  // x normalised, and dy times weight
    float sum = 0, along = 0;                        // the sums of scaled and of scaled * normed
    SHARDLINE_UNROLLED
    for (int group = 0; group < kGroups; ++group) {
      const int64_t i = int64_t{kV} * (group * block_threads() + thread_index());
      if (i >= a.n) break;
      const Pack<W, kV> dy = load<kV>(all_dy + row * a.n + i), scale = load<kV>(weight + i);
      const Pack<X, kV> x = load<kV>(all_x + row * a.n + i);
      SHARDLINE_UNROLLED
      for (int j = 0; j < kV; ++j) {
        const float gradient = number(dy.value[j]);
        normed[group][j] = (number(x.value[j]) - mean) * rstd;
        scaled[group][j] = gradient * number(scale.value[j]);
        sum += scaled[group][j];
        along += scaled[group][j] * normed[group][j];
        if (row < a.valid_rows) {
          weight_sum[group][j] += gradient * normed[group][j];
          bias_sum[group][j] += gradient;
        }
      }
    }
    sum = warp_sum(sum);
    along = warp_sum(along);
    const int place = turn * 2 * kWarp;
    if (lane_index() == 0) {
      sums[place + warp_index()] = sum;
      sums[place + kWarp + warp_index()] = along;
    }
    sync_block();
    sum = along = 0;
    for (int warp = 0; warp < warps; ++warp) {
      sum += sums[place + warp];
      along += sums[place + kWarp + warp];
    }
    const float shift = a.mean != nullptr ? sum / count : 0.0f;
    SHARDLINE_UNROLLED
    for (int group = 0; group < kGroups; ++group) {
      const int64_t i = int64_t{kV} * (group * block_threads() + thread_index());
      if (i >= a.n) break;
      Pack<X, kV> dx;
      SHARDLINE_UNROLLED
      for (int j = 0; j < kV; ++j)
        dx.value[j] = stored<X>((scaled[group][j] - shift - normed[group][j] * (along / count)) * rstd);
      store<kV>(all_dx + row * a.n + i, dx);
    }
  }
  float* weight_part = a.parts + block_x() * a.n;
  float* bias_part = weight_part + blocks_x() * a.n;
  SHARDLINE_UNROLLED
  for (int group = 0; group < kGroups; ++group) {
    const int64_t i = int64_t{kV} * (group * block_threads() + thread_index());
    SHARDLINE_UNROLLED
    for (int j = 0; j < kV && i < a.n; ++j) {
      if (a.weight_grad != nullptr) weight_part[i + j] = weight_sum[group][j];
      if (a.bias_grad != nullptr) bias_part[i + j] = bias_sum[group][j];
    }
  }
}

template <class W, class X>
void start_backward(const NormBackward& a, const Launch& how, Stream stream) {
  const int64_t fours = (a.n / 4 + how.threads - 1) / how.threads;
  if (!in_fours(a.n, a.x, a.dy, a.dx, a.weight))
    launch(how, stream, norm_gradient_rows<1, 16, W, X>, a);
  else if (fours == 1)
    launch(how, stream, norm_gradient_rows<4, 1, W, X>, a);
  else if (fours == 2)
    launch(how, stream, norm_gradient_rows<4, 2, W, X>, a);
  else
    launch(how, stream, norm_gradient_rows<4, 4, W, X>, a);
}

}  // namespace

void norm_forward(const NormForward& a, Number layer, Number residual, Stream stream) {
  const Launch how{.kernel = "norm_forward",
                   .blocks_x = (a.rows + kForwardWarps - 1) / kForwardWarps,
                   .threads = kForwardWarps * kWarp,
                   .bytes_read = a.rows * a.n * bytes_of(residual) + 2 * a.n * bytes_of(layer),
                   .bytes_written = a.rows * (a.n * bytes_of(layer) + 8)};
  with_numbers(layer, residual, [&]<class W, class X>(W, X) {
    if (in_fours(a.n, a.x, a.y, a.weight, a.bias))
      launch(how, stream, norm_rows<4, W, X>, a);
    else
      launch(how, stream, norm_rows<1, W, X>, a);
  });
}

void norm_backward(const NormBackward& a, Number layer, Number residual, Stream stream) {
  if (a.n > kWidestNorm) throw std::invalid_argument("no kernel computes the gradient of a norm of so many numbers");
  if (a.rows == 0) return;
  const RowCut cut(a.rows);
  const int64_t columns = in_fours(a.n, a.x, a.dy, a.dx, a.weight) ? a.n / 4 : a.n;
  const int sums = (a.weight_grad != nullptr) + (a.bias_grad != nullptr);
  const int threads = std::clamp<int64_t>((columns + kWarp - 1) / kWarp * kWarp, kWarp, kMostThreads);
  const Launch how{.kernel = "norm_backward",
                   .blocks_x = cut.blocks,
                   .threads = threads,
                   .shared_bytes = 2 * 2 * kWarp * sizeof(float),
                   .bytes_read = a.rows * (a.n * (bytes_of(layer) + bytes_of(residual)) + 8) + a.n * bytes_of(layer),
                   .bytes_written = a.rows * a.n * bytes_of(residual) + sums * cut.blocks * a.n * 4};
  with_numbers(layer, residual, [&]<class W, class X>(W, X) { start_backward<W, X>(a, how, stream); });
  add_part_sums({{a.parts, a.parts + cut.blocks * a.n}, {a.weight_grad, a.bias_grad}, cut.blocks, a.n}, stream);
}

}  // namespace shardline::cuda
