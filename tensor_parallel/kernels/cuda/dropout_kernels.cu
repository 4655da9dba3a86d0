#include "tensor_parallel/kernels/cuda/cuda_launches.h"
#include "tensor_parallel/kernels/cuda/number_dispatch.h"
#include "tensor_parallel/kernels/cuda/row_blocks.h"

namespace shardline::cuda {
namespace {

// The arguments of a launch, passed by value.
struct Masks {
  RowDropout rows;
  bool drops;
  uint64_t limit;
  float kept_scale;
};

Masks masks_of(const RowDropout& rows) {
  const float kept_scale = rows.probability < 1 ? 1 / (1 - rows.probability) : 0;
  return {rows, rows.probability > 0 && rows.tokens > 0, keep_limit(1 - rows.probability), kept_scale};
}

// The mask of one row: the factors of its elements.
class RowMask {
 public:
  SHARDLINE_DEVICE RowMask(const Masks& m, int64_t row, int64_t n) : limit_(m.limit), kept_scale_(m.kept_scale) {
    const int64_t token = m.rows.first_token + row;
    if (!m.drops || token >= m.rows.tokens) return;
    drops_ = true;
    words_ = stream_words(m.rows.seed, m.rows.op, m.rows.step, m.rows.samples[token]);
    start_ = m.rows.places[token] * n;
  }

  // factor[j] is for column `column` + j. Four columns share a block of random words, because every row whose length is
  // a multiple of four starts at a block.
  template <int kV>
  SHARDLINE_DEVICE void factors(int64_t column, float* factor) const {
    const uint64_t element = start_ + column;
    PhiloxBlock block{};
    if (drops_) block = words_.block(element / 4);
    SHARDLINE_UNROLLED
    for (int j = 0; j < kV; ++j) {
      const uint32_t word = kV == 4 ? block.word[j] : block.word[element % 4];
      factor[j] = !drops_ ? 1.0f : word < limit_ ? kept_scale_ : 0.0f;
    }
  }

 private:
  bool drops_ = false;
  StreamWords words_{};
  uint64_t start_ = 0, limit_;
  float kept_scale_;
};

template <int kV, class S, class R>
SHARDLINE_KERNEL(StripCut::kMostThreads, drop_and_add, const S* x, const S* bias, const R* residual, R* y, int64_t n,
                 int64_t strips, Masks m) {
  const int64_t row = block_x() / strips;
  const int64_t column = (block_x() % strips * block_threads() + thread_index()) * kV;
  if (column >= n) return;
  float factor[kV];
  RowMask(m, row, n).template factors<kV>(column, factor);
  const Pack<S, kV> branch = load<kV>(x + row * n + column);
  Pack<S, kV> shift{};
  if (bias != nullptr) shift = load<kV>(bias + column);
  Pack<R, kV> other{}, result;
  if (residual != nullptr) other = load<kV>(residual + row * n + column);
  SHARDLINE_UNROLLED
  for (int j = 0; j < kV; ++j)
    result.value[j] =
        stored<R>(number(other.value[j]) + (number(branch.value[j]) + number(shift.value[j])) * factor[j]);
  store<kV>(y + row * n + column, result);
}

template <int kV, class S, class R>
SHARDLINE_KERNEL(StripCut::kMostThreads, drop_gradient, const R* dy, S* dx, float* parts, int64_t n, int64_t valid_rows,
                 RowCut cut, Masks m) {
  const int64_t column = (block_x() * block_threads() + thread_index()) * kV;
  if (column >= n) return;
  const int64_t first = block_y() * cut.block_rows;
  const int64_t last = first + cut.block_rows < cut.rows ? first + cut.block_rows : cut.rows;
  float sum[kV] = {};
  for (int64_t row = first; row < last; ++row) {
    float factor[kV];
    RowMask(m, row, n).template factors<kV>(column, factor);
    const Pack<R, kV> gradient = load<kV>(dy + row * n + column);
    Pack<S, kV> result;
    SHARDLINE_UNROLLED
    for (int j = 0; j < kV; ++j) {
      const float exact = number(gradient.value[j]) * factor[j];
      result.value[j] = stored<S>(exact);
      if (row < valid_rows) sum[j] += exact;
    }
    store<kV>(dx + row * n + column, result);
  }
  SHARDLINE_UNROLLED
  for (int j = 0; j < kV && parts != nullptr; ++j) parts[block_y() * n + column + j] = sum[j];
}

}  // namespace

void bias_dropout_add(const BiasDropoutAdd& a, Number layer, Number residual, Stream stream) {
  const bool fours = in_fours(a.n, a.x, a.bias, a.residual, a.y);
  const StripCut strips(fours ? a.n / 4 : a.n);
  const int64_t elements = a.rows * a.n;
  const Launch how{.kernel = "bias_dropout_add",
                   .blocks_x = a.rows * strips.count,
                   .threads = strips.threads,
                   .bytes_read = elements * bytes_of(layer) + (a.bias != nullptr ? a.n * bytes_of(layer) : 0) +
                                 (a.residual != nullptr ? elements * bytes_of(residual) : 0),
                   .bytes_written = elements * bytes_of(residual)};
  const Masks masks = masks_of(a.dropout);
  with_numbers(layer, residual, [&]<class S, class R>(S, R) {
    const auto start = [&](auto kernel) {
      launch(how, stream, kernel, static_cast<const S*>(a.x), static_cast<const S*>(a.bias),
             static_cast<const R*>(a.residual), static_cast<R*>(a.y), a.n, strips.count, masks);
    };
    fours ? start(drop_and_add<4, S, R>) : start(drop_and_add<1, S, R>);
  });
}

void bias_dropout_backward(const BiasDropoutBackward& a, Number layer, Number residual, Stream stream) {
  if (a.rows == 0 || a.n == 0) return;
  const bool fours = in_fours(a.n, a.dy, a.dx);
  const StripCut strips(fours ? a.n / 4 : a.n);
  const RowCut cut(a.rows);
  float* parts = a.bias_grad != nullptr ? a.parts : nullptr;
  const Launch how{.kernel = "bias_dropout_backward",
                   .blocks_x = strips.count,
                   .blocks_y = cut.blocks,
                   .threads = strips.threads,
                   .bytes_read = a.rows * a.n * bytes_of(residual),
                   .bytes_written = a.rows * a.n * bytes_of(layer) + (parts != nullptr ? cut.blocks * a.n * 4 : 0)};
  const Masks masks = masks_of(a.dropout);
  with_numbers(layer, residual, [&]<class S, class R>(S, R) {
    const auto start = [&](auto kernel) {
      launch(how, stream, kernel, static_cast<const R*>(a.dy), static_cast<S*>(a.dx), parts, a.n, a.valid_rows, cut,
             masks);
    };
    fours ? start(drop_gradient<4, S, R>) : start(drop_gradient<1, S, R>);
  });
  add_part_sums({{a.parts}, {a.bias_grad}, cut.blocks, a.n}, stream);
}

}  // namespace shardline::cuda
