#include <cmath>
#include <memory>
#include <random>

#include "core/cuda/twin/grid.h"
#include "core/numbers/exact_sum.h"
#include "core/numbers/norm_leaf.h"
#include "optim/update/cuda/update_launches.h"

#include "tests/catch.h"

namespace shardline::update_kernels_test {
namespace {

// Of exactly so many bytes, for the address sanitizer.
std::unique_ptr<float[]> random_floats(int64_t count, unsigned seed, int smallest_exponent, int largest_exponent) {
  auto values = std::make_unique<float[]>(count);
  std::mt19937 generator(seed);
  std::uniform_int_distribution<int> exponent(smallest_exponent, largest_exponent);
  std::uniform_real_distribution<float> mantissa(-1, 1);
  for (int64_t i = 0; i < count; ++i) values[i] = std::ldexp(mantissa(generator), exponent(generator));
  return values;
}

// Also in their order of words, because ranks add words.
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
};

void check_adam(const std::vector<int64_t>& counts, const cuda::AdamStep& s) {
  std::vector<Range> actual, before;
  std::vector<cuda::AdamRange> ranges;
  for (size_t i = 0; i < counts.size(); ++i) {
    actual.emplace_back(counts[i], i % 2 == 0, 10 * i);
    before.emplace_back(counts[i], i % 2 == 0, 10 * i);
  }
  for (const Range& r : actual)
    ranges.push_back({r.values.get(), r.gradients.get(), r.first.get(), r.second.get(), r.count, r.decays});
  cuda::adam_step(ranges, s, nullptr);
  double worst = 0;
  const auto compare = [&](double is, double should_be) { worst = std::max(worst, std::fabs(is - should_be)); };
  for (size_t r = 0; r < counts.size(); ++r)
    for (int64_t i = 0; i < counts[r]; ++i) {
      double g = before[r].gradients[i] * s.gradient_factor, value = before[r].values[i];
      if (s.max_gradient_value > 0) g = std::clamp(g, -s.max_gradient_value, s.max_gradient_value);
      compare(actual[r].gradients[i], g);
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
    }
  CHECK(worst < 2e-6);
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
  const cuda::LaunchLog log;
  check_adam(std::vector<int64_t>(65, 8), step);
  CHECK(log.launches().size() == 2);
  check_adam({}, step);
  CHECK(log.launches().size() == 2);
  CHECK_THROWS_AS(check_adam({6}, step), std::invalid_argument);
}

}  // namespace shardline::update_kernels_test
