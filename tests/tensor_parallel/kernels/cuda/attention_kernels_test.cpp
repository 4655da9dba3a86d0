#include "core/numbers/philox.h"
#include "tests/tensor_parallel/kernels/cuda/arrays.h"

namespace shardline::attention_kernels_test {
namespace {

using namespace testing;

constexpr uint64_t kSeed = 0xfeedf00d12345678;
constexpr uint32_t kOp = 44, kStep = 17;

struct Case {
  int64_t batch, heads, length, head_dim;
  double probability;
  std::vector<int64_t> samples;
  int64_t first_head, max_positions;
};

// Tiles with one row, whole tiles, more than one tile; heads of every tile width; rows that cannot be read 16 bytes at
// a time; numbers of positions that are not multiples of four; everything dropped.
const Case kCases[] = {{1, 1, 1, 8, 0.3, {5}, 0, 4},         {2, 3, 5, 5, 0.25, {5, 1}, 2, 12},
                       {1, 2, 65, 64, 0.1, {900}, 1, 128},   {1, 1, 131, 16, 0, {}, 0, 131},
                       {2, 1, 64, 32, 0.5, {7, 3}, 7, 1024}, {1, 1, 70, 72, 0.1, {8}, 0, 72},
                       {1, 1, 37, 128, 0.9, {8}, 0, 40},     {3, 1, 18, 24, 0.2, {0, 1, 2}, 0, 19},
                       {1, 2, 9, 16, 1, {8}, 0, 16},         {1, 1, 200, 64, 0.1, {8}, 0, 200}};

// q, k and v side by side, as a linear layer leaves them: [batch, length, 3, heads, head_dim].
struct Rows {
  explicit Rows(const Case& c, int parts_ = 3)
      : parts(parts_), heads(c.heads), length(c.length), head_dim(c.head_dim) {}
  int64_t index(int64_t b, int64_t i, int part, int64_t h, int64_t d) const {
    return (((b * length + i) * parts + part) * heads + h) * head_dim + d;
  }
  int64_t count(const Case& c) const { return c.batch * length * parts * heads * head_dim; }
  cuda::HeadRows view(const Array& array, int part) const {
    const int64_t width = array.type() == Number::fp32 ? 4 : 2;
    auto* data = static_cast<std::byte*>(const_cast<void*>(array.data()));
    return {data + part * heads * head_dim * width, length * parts * heads * head_dim, head_dim,
            parts * heads * head_dim};
  }
  int64_t parts, heads, length, head_dim;
};

struct Reference {
  std::vector<double> out, log_sum_exp, d_qkv;
};

Reference reference(const Case& c, double scale, const Array& qkv, const Array& d_out) {
  const Rows three(c), one(c, 1);
  const int64_t n = c.length;
  Reference r;
  r.out.resize(one.count(c));
  r.d_qkv.resize(three.count(c));
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t h = 0; h < c.heads; ++h) {
      const bool drops = c.probability > 0;
      const double kept_scale = drops ? (c.probability < 1 ? 1 / (1 - c.probability) : 0) : 1;
      const auto at = [&](int part, int64_t i, int64_t d) { return qkv[three.index(b, i, part, h, d)]; };
      const auto add = [&](int part, int64_t i, int64_t d, double x) { r.d_qkv[three.index(b, i, part, h, d)] += x; };
      for (int64_t i = 0; i < n; ++i) {
        std::vector<double> p(i + 1), dp(i + 1);
        std::vector<uint8_t> keep(i + 1, 1);
        if (drops)
          random_keep({kSeed, kOp, kStep, static_cast<uint32_t>(c.samples[b])},
                      ((c.first_head + h) * c.max_positions + i) * c.max_positions, i + 1, 1 - c.probability,
                      keep.data());
        double most = -INFINITY, sum = 0;
        for (int64_t j = 0; j <= i; ++j) {
          for (int64_t d = 0; d < c.head_dim; ++d) p[j] += at(0, i, d) * at(1, j, d) * scale;
          most = std::max(most, p[j]);
        }
        for (int64_t j = 0; j <= i; ++j) sum += p[j] = std::exp(p[j] - most);
        r.log_sum_exp.push_back(most + std::log(sum));
        double along = 0;
        for (int64_t j = 0; j <= i; ++j) {
          p[j] /= sum;
          const double factor = keep[j] ? kept_scale : 0;
          for (int64_t d = 0; d < c.head_dim; ++d) {
            const double gradient = d_out[one.index(b, i, 0, h, d)];
            r.out[one.index(b, i, 0, h, d)] += p[j] * factor * at(2, j, d);
            add(2, j, d, p[j] * factor * gradient);
            dp[j] += gradient * at(2, j, d) * factor;
          }
          along += p[j] * dp[j];
        }
        for (int64_t j = 0; j <= i; ++j)
          for (int64_t d = 0; d < c.head_dim; ++d) {
            const double d_score = p[j] * (dp[j] - along) * scale;
            add(0, i, d, d_score * at(1, j, d));
            add(1, j, d, d_score * at(0, i, d));
          }
      }
    }
  return r;
}

double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double value : values) most = std::max(most, std::fabs(value));
  return most;
}

cuda::AttentionCase case_of(const Case& c, double scale) {
  return {.batch = c.batch,
          .heads = c.heads,
          .length = c.length,
          .head_dim = c.head_dim,
          .scale = static_cast<float>(scale),
          .seed = kSeed,
          .op = kOp,
          .step = kStep,
          .probability = c.probability,
          .samples = c.samples.data(),
          .first_head = c.first_head,
          .max_positions = c.max_positions};
}

void check(const Case& c, Number type) {
  CAPTURE(c.batch, c.heads, c.length, c.head_dim, c.probability, static_cast<int>(type));
  const Rows three(c), one(c, 1);
  const double scale = 1 / std::sqrt(static_cast<double>(c.head_dim));
  const Array qkv = Array::random(type, three.count(c), 1), d_out = Array::random(type, one.count(c), 2);
  const Reference expected = reference(c, scale, qkv, d_out);
  // Probabilities, the gradients of scores and the output from which these are made are rounded to half precision.
  const double slack = type == Number::fp32 ? 1e-5 : 2 * rounding_of(type);
  Array out(type, one.count(c)), log_sum_exp(Number::fp32, c.batch * c.heads * c.length);
  const cuda::AttentionCase sizes = case_of(c, scale);
  cuda::attention_forward(
      sizes, {three.view(qkv, 0), three.view(qkv, 1), three.view(qkv, 2), one.view(out, 0), log_sum_exp.floats()}, type,
      nullptr);
  check_close(out, expected.out, largest(expected.out), slack);
  check_close(log_sum_exp, expected.log_sum_exp, 4);

  Array d_qkv(type, three.count(c), 7), along(Number::fp32, c.batch * c.heads * c.length);
  cuda::attention_backward(
      sizes,
      {three.view(qkv, 0), three.view(qkv, 1), three.view(qkv, 2), one.view(out, 0), one.view(d_out, 0),
       three.view(d_qkv, 0), three.view(d_qkv, 1), three.view(d_qkv, 2), log_sum_exp.floats(), along.floats()},
      type, nullptr);
  check_close(d_qkv, expected.d_qkv, largest(expected.d_qkv), slack);
}

// Masks for tiles of every width; rows of the mask that do not begin at a multiple of four; and a head whose query 23
// has block 2^32 of the stream.
const Case kMasks[] = {{2, 2, 70, 72, 0.4, {900, 1}, 3, 128},
                       {1, 1, 64, 64, 0.4, {900}, 3, 128},
                       {1, 1, 40, 40, 0.4, {1}, 3, 47},
                       {1, 1, 40, 40, 0.4, {1}, 20, 29308}};

// Scores are 0, so that all probabilities of a query are equal, and values and gradients are the rows of the identity:
// each result is a probability that is kept or dropped.
void check_mask(const Case& c, Number type) {
  CAPTURE(c.head_dim, c.max_positions, static_cast<int>(type));
  const Rows three(c), one(c, 1);
  Array qkv(type, three.count(c)), d_out(type, one.count(c)), out(type, one.count(c)), d_qkv(type, three.count(c));
  Array log_sum_exp(Number::fp32, c.batch * c.heads * c.length), along(Number::fp32, c.batch * c.heads * c.length);
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t h = 0; h < c.heads; ++h)
      for (int64_t i = 0; i < c.length; ++i) {
        qkv.set(three.index(b, i, 2, h, i), 1);
        d_out.set(one.index(b, i, 0, h, i), 1);
      }
  const cuda::AttentionCase sizes = case_of(c, 1);
  cuda::attention_forward(
      sizes, {three.view(qkv, 0), three.view(qkv, 1), three.view(qkv, 2), one.view(out, 0), log_sum_exp.floats()}, type,
      nullptr);
  cuda::attention_backward(
      sizes,
      {three.view(qkv, 0), three.view(qkv, 1), three.view(qkv, 2), one.view(out, 0), one.view(d_out, 0),
       three.view(d_qkv, 0), three.view(d_qkv, 1), three.view(d_qkv, 2), log_sum_exp.floats(), along.floats()},
      type, nullptr);
  int64_t wrong = 0;
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t h = 0; h < c.heads; ++h)
      for (int64_t i = 0; i < c.length; ++i) {
        std::vector<uint8_t> keep(c.length);
        random_keep({kSeed, kOp, kStep, static_cast<uint32_t>(c.samples[b])},
                    ((c.first_head + h) * c.max_positions + i) * c.max_positions, i + 1, 1 - c.probability,
                    keep.data());
        for (int64_t j = 0; j < c.length; ++j) {
          wrong += (out[one.index(b, i, 0, h, j)] != 0) != (keep[j] != 0);
          wrong += (d_qkv[three.index(b, j, 2, h, i)] != 0) != (keep[j] != 0);
        }
      }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("kernels of attention equal float64") {
  for (const Case& c : kCases)
    for (const Number type : kNumbers) check(c, type);
}

TEST_CASE("kernels of attention drop the same probabilities as the CPU") {
  for (const Case& c : kMasks)
    for (const Number type : {Number::fp32, Number::bf16}) check_mask(c, type);
}

TEST_CASE("kernels of attention do not depend on the order of blocks and threads") {
  in_both_orders([] { check(kCases[4], Number::bf16); });
}

TEST_CASE("kernels of attention give NaN where the softmax is not defined") {
  for (const Number type : {Number::fp32, Number::bf16}) {
    CAPTURE(static_cast<int>(type));
    const Case c{1, 1, 70, 8, 0, {}, 0, 70};
    const Rows three(c), one(c, 1);
    Array qkv(type, three.count(c)), out(type, one.count(c)), log_sum_exp(Number::fp32, c.length);
    for (int64_t i = 0; i < c.length; ++i) {
      qkv.set(three.index(0, i, 0, 0, 0), 1);
      qkv.set(three.index(0, i, 1, 0, 0), i == 2 ? INFINITY : i < 66 ? -INFINITY : NAN);
      qkv.set(three.index(0, i, 2, 0, 0), i);
    }
    qkv.set(three.index(0, 1, 0, 0, 0), -1);  // times +infinity
    qkv.set(three.index(0, 2, 0, 0, 0), 1);
    const auto run = [&] {
      cuda::attention_forward(
          case_of(c, 1),
          {three.view(qkv, 0), three.view(qkv, 1), three.view(qkv, 2), one.view(out, 0), log_sum_exp.floats()}, type,
          nullptr);
    };
    run();
    for (int64_t i = 0; i < c.length; ++i) {
      CAPTURE(i);
      CHECK(std::isnan(out[i * 8]));
      CHECK(std::isnan(log_sum_exp[i]));
    }
    // From here on, queries see a finite score, which is in the second tile of keys after a first one without any.
    for (int64_t i = 0; i < c.length; ++i) qkv.set(three.index(0, i, 0, 0, 0), 1);
    for (int64_t i = 0; i < c.length; ++i) qkv.set(three.index(0, i, 1, 0, 0), i < 66 ? -INFINITY : 3);
    run();
    for (int64_t i = 0; i < c.length; ++i) {
      CAPTURE(i);
      if (i < 66) {
        CHECK(std::isnan(out[i * 8]));
      } else {
        CHECK(out[i * 8] == Approx((66.0 + static_cast<double>(i)) / 2).epsilon(rounding_of(type) * 2));
        CHECK(log_sum_exp[i] == Approx(3 + std::log(i - 65.0)));
      }
    }
  }
}

TEST_CASE("attention without a kernel is refused") {
  const auto refused = [](cuda::AttentionCase c) {
    CHECK_THROWS_AS(cuda::attention_forward(c, {}, Number::fp32, nullptr), std::invalid_argument);
  };
  const Case good{1, 1, 4, 4, 0.5, {0}, 0, 4};
  const Case wide{1, 1, 4, kWidestHead + 1, 0, {}, 0, 4}, many{1, 65536, 4, 4, 0, {}, 0, 4};
  refused(case_of(wide, 1));
  refused(case_of(many, 1));
  refused(case_of(good, 0));
  refused(case_of(good, -1));
  auto c = case_of(good, 1);
  c.max_positions = 3;
  refused(c);
}

}  // namespace shardline::attention_kernels_test
