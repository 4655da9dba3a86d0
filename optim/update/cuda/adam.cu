#include <cmath>
#include <stdexcept>

#include "core/alignment.h"
#include "core/cuda/launch.h"
#include "optim/update/cuda/update_launches.h"

namespace shardline::cuda {
namespace {

constexpr int kThreads = 256, kMostRanges = 56;
constexpr int64_t kBlockElements = kThreads * 4 * 4;

// The ranges of a launch, passed by value. Blocks first_block[i] to first_block[i + 1] - 1 process range i.
struct Ranges {
  int count = 0;
  int64_t first_block[kMostRanges + 1] = {};
  AdamRange range[kMostRanges];
};

struct Factors {
  float decay, gradient, most, beta1, beta2, step_size, root_correction, epsilon;
  float rest1, rest2;            // 1 - beta1 and 1 - beta2, which would lose many digits if computed in fp32
  const float* device_gradient;  // null: use `gradient`
  bool decoupled;
};
static_assert(sizeof(Ranges) + sizeof(Factors) <= 4096, "the limit of what a launch can pass by value");

// S: the type of rounded values.
template <class S>
SHARDLINE_KERNEL(kThreads, update, Ranges ranges, Factors f) {
  int low = 0, high = ranges.count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (ranges.first_block[middle] <= block_x() ? low : high) = middle;
  }
  const AdamRange& range = ranges.range[low];
  const float decay = range.decays ? f.decay : 0.0f;
  const float factor = f.device_gradient != nullptr ? *f.device_gradient : f.gradient;
  S* rounded = static_cast<S*>(range.rounded);
  const int64_t first = (block_x() - ranges.first_block[low]) * kBlockElements;
  for (int64_t i = first + thread_index() * 4; i < first + kBlockElements && i < range.count; i += kThreads * 4) {
    Pack<float, 4> value = load<4>(range.values + i), m = load<4>(range.first + i), v = load<4>(range.second + i);
    const Pack<float, 4> gradient = load<4>(range.gradients + i);
    Pack<S, 4> copy;
    SHARDLINE_UNROLLED
    for (int j = 0; j < 4; ++j) {
      float g = gradient.value[j] * factor;
      if (f.most > 0) g = g > f.most ? f.most : g < -f.most ? -f.most : g;
      if (f.decoupled)
        value.value[j] -= decay * value.value[j];
      else
        g += decay * value.value[j];
      m.value[j] = f.beta1 * m.value[j] + f.rest1 * g;
      v.value[j] = f.beta2 * v.value[j] + f.rest2 * g * g;
      value.value[j] -= f.step_size * m.value[j] / (sqrtf(v.value[j]) / f.root_correction + f.epsilon);
      copy.value[j] = stored<S>(value.value[j]);
    }
    store<4>(range.values + i, value);
    store<4>(range.first + i, m);
    store<4>(range.second + i, v);
    if (rounded != nullptr) store<4>(rounded + i, copy);
  }
}

void start(const Ranges& ranges, const Factors& f, Number rounded, Stream stream) {
  int64_t elements = 0, copied = 0;
  for (int i = 0; i < ranges.count; ++i) {
    elements += ranges.range[i].count;
    if (ranges.range[i].rounded != nullptr) copied += ranges.range[i].count;
  }
  const Launch how{.kernel = "adam_step",
                   .blocks_x = ranges.first_block[ranges.count],
                   .threads = kThreads,
                   .bytes_read = 16 * elements,
                   .bytes_written = 12 * elements + 2 * copied};
  if (rounded == Number::bf16)
    launch(how, stream, update<Bf16>, ranges, f);
  else if (rounded == Number::fp16)
    launch(how, stream, update<Fp16>, ranges, f);
  else
    launch(how, stream, update<float>, ranges, f);
}

}  // namespace

void adam_step(const std::vector<AdamRange>& all, const AdamStep& s, Number rounded, Stream stream) {
  const double steps = s.step;
  const auto corrected = [&](double beta) { return 1 - std::pow(beta, steps); };
  Factors f;
  f.decay = s.decoupled ? s.learning_rate * s.weight_decay : s.weight_decay;
  f.gradient = s.gradient_factor;
  f.most = s.max_gradient_value;
  f.beta1 = s.beta1;
  f.beta2 = s.beta2;
  f.rest1 = 1 - s.beta1;
  f.rest2 = 1 - s.beta2;
  f.step_size = s.learning_rate / corrected(s.beta1);
  f.root_correction = std::sqrt(corrected(s.beta2));
  f.epsilon = s.epsilon;
  f.device_gradient = s.device_factor;
  f.decoupled = s.decoupled;
  Ranges ranges;
  for (const AdamRange& range : all) {
    bool aligned = range.count % 4 == 0;
    for (const float* start_of :
         std::initializer_list<const float*>{range.values, range.gradients, range.first, range.second})
      aligned = aligned && is_aligned(start_of, 16);
    aligned = aligned && is_aligned(range.rounded, 8);
    if (range.rounded != nullptr && rounded == Number::fp32)
      throw std::invalid_argument("rounded values must be in half precision");
    if (!aligned) throw std::invalid_argument("ranges must be multiples of four numbers, aligned to 16 bytes");
    if (range.count == 0) continue;
    ranges.range[ranges.count] = range;
    ranges.first_block[ranges.count + 1] =
        ranges.first_block[ranges.count] + (range.count + kBlockElements - 1) / kBlockElements;
    if (++ranges.count == kMostRanges) {
      start(ranges, f, rounded, stream);
      ranges.count = 0;
    }
  }
  start(ranges, f, rounded, stream);
}

}  // namespace shardline::cuda
