#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "core/cuda/device_code.h"
#include "core/cuda/twin/grid.h"
#include "core/numbers/exact_sum.h"
#include "core/numbers/half_numbers.h"
#include "core/numbers/norm_leaf.h"
#include "optim/update/cuda/update_launches.h"

#include "tests/catch.h"

namespace shardline::update_kernels_test {
namespace {

// An array of exactly this many bytes, for the address sanitizer.
std::unique_ptr<float[]> random_floats(int64_t count, unsigned seed, int smallest_exponent, int largest_exponent) {
  auto values = std::make_unique<float[]>(count);
  std::mt19937 generator(seed);
  std::uniform_int_distribution<int> exponent(smallest_exponent, largest_exponent);
  std::uniform_real_distribution<float> mantissa(-1, 1);
  for (int64_t i = 0; i < count; ++i) values[i] = std::ldexp(mantissa(generator), exponent(generator));
  return values;
}

// Checks the sums, and that they are the same if threads run in a different order.
void check_sum(const float* gradient, int64_t count, int parts) {
  ExactSum expected;
  for (int64_t i = 0; i < count; i += kNormLeaf) expected.add(norm_leaf(gradient + i));
  for (const auto order : {twin::Order::first_first, twin::Order::last_first}) {
    twin::order = order;
    std::vector<int64_t> words(ExactSum::kWords);
    const int64_t part = count / kNormLeaf / parts * kNormLeaf;
    for (int i = 0; i < parts; ++i)
      cuda::add_exact_squares(gradient + i * part, i + 1 < parts ? part : count - i * part, words.data(), nullptr);
    const double sum = ExactSum::of_words(words.data()).value(), wanted = expected.value();
    CHECK(((std::isnan(sum) && std::isnan(wanted)) || sum == wanted));
  }
  twin::order = twin::Order::first_first;
}

struct Range {
  Range(int64_t count_, bool decays_, unsigned seed)
      : count(count_),
        decays(decays_),
        values(random_floats(count, seed, -3, 1)),
        gradients(random_floats(count, seed + 1, -6, 3)),
        first(random_floats(count, seed + 2, -4, 0)),
        second(random_floats(count, seed + 3, -6, 0)) {
    for (int64_t i = 0; i < count; ++i) second[i] = std::fabs(second[i]);
  }
  int64_t count;
  bool decays;
  std::unique_ptr<float[]> values, gradients, first, second;
  std::unique_ptr<uint16_t[]> rounded = std::make_unique<uint16_t[]>(count);
};

uint16_t rounded_to(cuda::Number type, float value) {
  return type == cuda::Number::bf16 ? narrow<Bf16>(value).bits : narrow<Fp16>(value).bits;
}

// `copies`: the type of the half-precision copies, fp32 for none. `factor`: on the device, replaces the step's factor.
void check_adam(const std::vector<int64_t>& counts, cuda::AdamStep s, cuda::Number copies = cuda::Number::fp32,
                const float* factor = nullptr) {
  s.device_factor = factor;
  std::vector<Range> actual, before;
  std::vector<cuda::AdamRange> ranges;
  for (size_t i = 0; i < counts.size(); ++i) {
    actual.emplace_back(counts[i], i % 2 == 0, 10 * i);
    before.emplace_back(counts[i], i % 2 == 0, 10 * i);
  }
  for (const Range& r : actual)
    ranges.push_back({r.values.get(), r.gradients.get(), r.first.get(), r.second.get(),
                      copies == cuda::Number::fp32 ? nullptr : r.rounded.get(), r.count, r.decays});
  cuda::adam_step(ranges, s, copies, nullptr);
  const double gradient_factor = factor != nullptr ? *factor : s.gradient_factor;
  int64_t wrong_copies = 0;
  double worst = 0;
  const auto compare = [&](double is, double should_be) { worst = std::max(worst, std::fabs(is - should_be)); };
  for (size_t r = 0; r < counts.size(); ++r)
    for (int64_t i = 0; i < counts[r]; ++i) {
      double g = before[r].gradients[i] * gradient_factor, value = before[r].values[i];
      if (s.max_gradient_value > 0) g = std::clamp(g, -s.max_gradient_value, s.max_gradient_value);
      const double decay = before[r].decays ? s.weight_decay : 0;
      if (s.decoupled)
        value -= s.learning_rate * decay * value;
      else
        g += decay * value;
      const double m = s.beta1 * before[r].first[i] + (1 - s.beta1) * g;
      const double v = s.beta2 * before[r].second[i] + (1 - s.beta2) * g * g;
      const double m_hat = m / (1 - std::pow(s.beta1, s.step)), v_hat = v / (1 - std::pow(s.beta2, s.step));
      compare(actual[r].first[i], m);
      compare(actual[r].second[i], v);
      compare(actual[r].values[i], value - s.learning_rate * m_hat / (std::sqrt(v_hat) + s.epsilon));
      const bool copied = copies != cuda::Number::fp32;
      wrong_copies += actual[r].rounded[i] != (copied ? rounded_to(copies, actual[r].values[i]) : 0);
    }
  CHECK(worst < 2e-6);
  CHECK(wrong_copies == 0);
}

}  // namespace

TEST_CASE("the kernel of the gradient norm adds squares to the same bits as the host") {
  for (const int64_t leaves : {1, 2, 255, 257, 3000}) {
    const int64_t count = leaves * kNormLeaf;
    const auto ordinary = random_floats(count, 1, -20, 3), wild = random_floats(count, 2, -149, 127);
    check_sum(ordinary.get(), count, 1);
    check_sum(wild.get(), count, leaves > 2 ? 3 : 1);
  }
  const auto numbers = random_floats(32 * kNormLeaf, 3, -100, 10);
  numbers[40] = INFINITY;
  check_sum(numbers.get(), 32 * kNormLeaf, 2);
  numbers[300] = NAN;
  check_sum(numbers.get(), 32 * kNormLeaf, 2);
  CHECK_THROWS_AS(cuda::add_exact_squares(numbers.get(), 8, nullptr, nullptr), std::invalid_argument);
  CHECK_THROWS_AS(cuda::add_exact_squares(numbers.get() + 1, 16, nullptr, nullptr), std::invalid_argument);
}

TEST_CASE("the kernel of Adam equals float64, many ranges in a launch") {
  const cuda::AdamStep step{.learning_rate = 0.01,
                            .beta1 = 0.9,
                            .beta2 = 0.95,
                            .epsilon = 1e-6,
                            .weight_decay = 0.1,
                            .step = 3,
                            .gradient_factor = 1,
                            .max_gradient_value = 0,
                            .decoupled = true};
  check_adam({4, 4096, 0, 4100, 32}, step);
  auto clipped = step;
  clipped.gradient_factor = 0.3;
  clipped.max_gradient_value = 0.5;
  check_adam({64, 9000}, clipped);
  clipped.decoupled = false;
  check_adam({64, 36}, clipped);
  const float factor = 0.125;
  check_adam({64, 5000}, step, cuda::Number::bf16);
  check_adam({64, 5000}, clipped, cuda::Number::fp16, &factor);
  const cuda::LaunchLog log;
  check_adam(std::vector<int64_t>(65, 8), step);
  CHECK(log.launches().size() == 2);
  check_adam({}, step);
  CHECK(log.launches().size() == 2);
  CHECK_THROWS_AS(check_adam({6}, step), std::invalid_argument);
}

// In fp32, 1 - 0.999f differs from 0.001 by 1.3e-5 of it.
TEST_CASE("the kernel of Adam has the factors of new gradients from float64") {
  for (const double beta : {0.9, 0.99, 0.999, 0.9999}) {
    CAPTURE(beta);
    const Range range(64, false, 1);
    std::fill_n(range.first.get(), range.count, 0.0f);
    std::fill_n(range.second.get(), range.count, 0.0f);
    cuda::adam_step(
        {{.values = range.values.get(),
          .gradients = range.gradients.get(),
          .first = range.first.get(),
          .second = range.second.get(),
          .count = range.count}},
        {.learning_rate = 0.01, .beta1 = beta, .beta2 = beta, .epsilon = 1e-8, .step = 1, .gradient_factor = 1},
        cuda::Number::fp32, nullptr);
    for (int64_t i = 0; i < range.count; ++i) {
      const double g = range.gradients[i];
      REQUIRE(range.first[i] == Approx((1 - beta) * g).epsilon(2e-7));
      REQUIRE(range.second[i] == Approx((1 - beta) * g * g).epsilon(3e-7));
    }
  }
}

TEST_CASE("values and their copies are all that Adam writes besides its moments") {
  const Range range(4096, true, 1);
  const cuda::LaunchLog log;
  const cuda::AdamStep step{.learning_rate = 0.01, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-6, .step = 1};
  const cuda::AdamRange plain{.values = range.values.get(),
                              .gradients = range.gradients.get(),
                              .first = range.first.get(),
                              .second = range.second.get(),
                              .count = range.count};
  cuda::AdamRange copied = plain;
  copied.rounded = range.rounded.get();
  cuda::adam_step({plain}, step, cuda::Number::fp32, nullptr);
  cuda::adam_step({plain, copied}, step, cuda::Number::bf16, nullptr);
  REQUIRE(log.launches().size() == 2);
  CHECK(log.launches()[0].bytes_read == 4096 * 16);
  CHECK(log.launches()[0].bytes_written == 4096 * 12);
  CHECK(log.launches()[1].bytes_read == 2 * 4096 * 16);
  CHECK(log.launches()[1].bytes_written == 2 * 4096 * 12 + 4096 * 2);
  CHECK_THROWS_AS(cuda::adam_step({copied}, step, cuda::Number::fp32, nullptr), std::invalid_argument);
}

// Rounds by definition: to the nearer of the two neighbours in half precision, or to the even one of two equally near.
template <class S>
uint16_t nearest(double value, uint16_t below) {  // below: bits of the neighbour nearer to zero
  const auto above = static_cast<uint16_t>(below + 1);
  const double low = std::fabs(widen(S{below})), size = std::fabs(value);
  // Infinity takes the place of the next number, if there were one.
  const double before = std::fabs(widen(S{static_cast<uint16_t>(below - 1)}));
  const double high = std::isinf(widen(S{above})) ? low + (low - before) : std::fabs(widen(S{above}));
  if (size - low == high - size) return below % 2 == 0 ? below : above;
  return size - low < high - size ? below : above;
}

template <class S>
void check_rounding(cuda::Number type, uint16_t infinity) {
  std::vector<float> values;
  std::vector<uint16_t> expected;
  const auto add = [&](float value, uint16_t bits) {
    values.push_back(value);
    expected.push_back(bits);
  };
  for (uint32_t sign = 0; sign <= 0x8000; sign += 0x8000)
    for (uint32_t bits = 0; bits < infinity; ++bits) {
      const auto below = static_cast<uint16_t>(sign | bits);
      const float exact = widen(S{below});
      const float next = bits + 1 == infinity ? 2 * exact - widen(S{static_cast<uint16_t>(below - 1)})
                                              : widen(S{static_cast<uint16_t>(below + 1)});
      add(exact, below);
      // The middle, computed so that the largest do not overflow, and its neighbours in fp32.
      const float middle = exact + (next / 2 - exact / 2);
      for (const float value : {std::nextafter(middle, 0.0f), middle, std::nextafter(middle, next)})
        if (std::isfinite(value) && std::fabs(value) > std::fabs(exact)) add(value, nearest<S>(value, below));
    }
  for (const float sign : {1.0f, -1.0f}) {
    const auto bits = static_cast<uint16_t>(infinity | (sign < 0 ? 0x8000 : 0));
    add(sign * std::numeric_limits<float>::max(), bits);
    CHECK(cuda::stored<S>(sign * INFINITY).bits == bits);  // Adam cannot keep this value
  }
  while (values.size() % 4 != 0) add(0, 0);
  const auto count = static_cast<int64_t>(values.size());
  std::vector<float> original = values, zeros(count), first(count), second(count);
  std::vector<uint16_t> rounded(count);
  const cuda::AdamStep nothing{.learning_rate = 0, .epsilon = 1, .step = 1, .gradient_factor = 1};
  const auto copy = [&] {
    cuda::adam_step({{.values = values.data(),
                      .gradients = zeros.data(),
                      .first = first.data(),
                      .second = second.data(),
                      .rounded = rounded.data(),
                      .count = count}},
                    nothing, type, nullptr);
  };
  copy();
  CHECK(std::memcmp(values.data(), original.data(), count * sizeof(float)) == 0);
  int64_t wrong = 0, first_wrong = -1;
  for (int64_t i = 0; i < count; ++i)
    if (rounded[i] != expected[i] && wrong++ == 0) first_wrong = i;
  CAPTURE(first_wrong, first_wrong < 0 ? 0.0f : values[first_wrong]);
  CHECK(wrong == 0);

  values.assign(count, NAN);
  values[0] = -NAN;
  copy();
  for (int64_t i = 0; i < count; ++i) wrong += !std::isnan(widen(S{rounded[i]}));
  CHECK(wrong == 0);
}

TEST_CASE("copies in half precision are rounded to nearest, ties to even, for every number and its neighbours") {
  check_rounding<Bf16>(cuda::Number::bf16, 0x7f80);
  check_rounding<Fp16>(cuda::Number::fp16, 0x7c00);
}

TEST_CASE("the clip factor equals that of the host") {
  const auto factor_of = [](std::vector<int64_t> words, double scale, double most) {
    float factor = -1;
    cuda::clip_factor({.words = words.data(), .scale = scale, .most = most, .factor = &factor}, nullptr);
    return factor;
  };
  const auto expected = [](double norm, double scale, double most) {
    return static_cast<float>((most > 0 ? std::min(1.0, most / (norm / scale + 1e-6)) : 1.0) / scale);
  };
  for (const int exponent : {-149, -40, -3, 0, 20, 100}) {
    const auto gradient = random_floats(4 * kNormLeaf, 5, exponent, exponent);
    std::vector<int64_t> words(ExactSum::kWords);
    for (int times = 0; times < 3; ++times)  // words that carry
      cuda::add_exact_squares(gradient.get(), 4 * kNormLeaf, words.data(), nullptr);
    const double norm = std::sqrt(ExactSum::of_words(words.data()).value());
    for (const double scale : {1.0, 1024.0})
      for (const double most : {0.0, 1e-3, 1.0, 1e30})
        CHECK(factor_of(words, scale, most) == Approx(expected(norm, scale, most)).epsilon(1e-6));
  }
  std::vector<int64_t> words(ExactSum::kWords);
  CHECK(factor_of(words, 2, 1) == 0.5f);
  words[ExactSum::kInfinities] = 1;
  CHECK(factor_of(words, 1, 1) == 0);
  words[ExactSum::kNans] = 1;
  CHECK(factor_of(words, 1, 1) == 1);  // like std::min(1, NaN): the update spreads it
}

}  // namespace shardline::update_kernels_test
