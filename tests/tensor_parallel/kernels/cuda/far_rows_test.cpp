// Rows and masks whose distances and element numbers do not fit in 32 bits.
#include <sys/mman.h>

#include <numeric>

#include "core/numbers/philox.h"
#include "tests/tensor_parallel/kernels/cuda/arrays.h"

namespace shardline::far_rows_test {
namespace {

using namespace testing;

constexpr int64_t kRows = 3, kColumns = 64, kFar = (int64_t{1} << 32) + kColumns;
constexpr Number kType = Number::bf16;
constexpr int64_t kWidth = 2;

struct Distance {
  int64_t rows = kRows, numbers = kFar;  // between the beginnings of adjacent rows
};

// Address space for rows that are far apart. Only pages that are used take memory.
class FarRows {
 public:
  explicit FarRows(const Distance& apart)
      : apart_(apart), bytes_(((apart.rows - 1) * apart.numbers + kColumns) * kWidth) {
    memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(memory_ != MAP_FAILED);
  }
  ~FarRows() { munmap(memory_, bytes_); }
  FarRows(const FarRows&) = delete;
  FarRows& operator=(const FarRows&) = delete;

  std::byte* row(int64_t i) const { return static_cast<std::byte*>(memory_) + i * apart_.numbers * kWidth; }

 private:
  const Distance apart_;
  const size_t bytes_;
  void* memory_;
};

// Runs a kernel on adjacent rows and on the same rows far apart; the results must have the same bits.
void check_far(const std::function<void(std::byte* rows, int64_t stride)>& run, const Distance& apart = {}) {
  Array near = Array::random(kType, apart.rows * kColumns, 1);
  auto* const begin = static_cast<std::byte*>(near.data());
  const FarRows far(apart);
  for (int64_t row = 0; row < apart.rows; ++row)
    std::memcpy(far.row(row), begin + row * kColumns * kWidth, kColumns * kWidth);
  run(begin, kColumns);
  run(far.row(0), apart.numbers);
  for (int64_t row = 0; row < apart.rows; ++row)
    CHECK(std::memcmp(far.row(row), begin + row * kColumns * kWidth, kColumns * kWidth) == 0);
}

}  // namespace

TEST_CASE("kernels of cross entropy find rows that are more than 2^32 numbers apart") {
  const std::vector<int64_t> label = {4, -1, 36};
  const std::vector<float> scale = {0.5, 0, 0.5};
  std::vector<std::vector<float>> sums;
  check_far([&](std::byte* rows, int64_t stride) {
    std::vector<float> found(3 * kRows);
    cuda::cross_entropy_stats({.logits = rows,
                               .label = label.data(),
                               .largest = found.data(),
                               .sum = found.data() + kRows,
                               .picked = found.data() + 2 * kRows,
                               .rows = kRows,
                               .v = 37,
                               .row_stride = stride},
                              kType, nullptr);
    sums.push_back(found);
    cuda::cross_entropy_gradient({.logits = rows,
                                  .label = label.data(),
                                  .log_sum_exp = found.data() + kRows,
                                  .scale = scale.data(),
                                  .rows = kRows,
                                  .v = 37,
                                  .row_stride = stride},
                                 kType, nullptr);
  });
  CHECK(sums[0] == sums[1]);
  std::vector<double> totals;
  check_far([&](std::byte* rows, int64_t stride) {
    std::vector<float> loss(kRows);
    std::vector<double> total(2);
    cuda::whole_cross_entropy({.logits = rows,
                               .label = label.data(),
                               .loss = loss.data(),
                               .total = total.data(),
                               .scale = 0.5,
                               .rows = kRows,
                               .v = 37,
                               .row_stride = stride,
                               .with_gradient = true},
                              kType, nullptr);
    totals.push_back(total[0]);
  });
  CHECK(totals[0] == totals[1]);
}

TEST_CASE("kernels of column sums and rotations find rows that are more than 2^32 numbers apart") {
  std::vector<std::vector<float>> sums;
  check_far([&](std::byte* rows, int64_t stride) {
    std::vector<float> total(kColumns);
    cuda::add_column_sums({.x = rows, .total = total.data(), .rows = kRows, .n = kColumns, .row_stride = stride}, kType,
                          nullptr);
    sums.push_back(total);
  });
  CHECK(sums[0] == sums[1]);
  const std::vector<float> table = {0.6f, 0.8f, 0.8f, 0.6f};  // two positions of one pair
  const std::vector<int64_t> position = {0, 1, 1};
  check_far([&](std::byte* rows, int64_t stride) {
    cuda::rotate_pairs({.x = rows,
                        .table = table.data(),
                        .position = position.data(),
                        .rows = kRows,
                        .heads = 4,
                        .head_dim = 16,
                        .row_stride = stride,
                        .positions = 2,
                        .pairs = 1,
                        .back = false},
                       kType, nullptr);
  });
}

TEST_CASE("kernels of attention find tokens, samples and tiles that are more than 2^32 numbers apart") {
  const auto check_attention = [](int64_t batch, int64_t length, const Distance& apart) {
    CAPTURE(batch, length);
    check_far(
        [&](std::byte* rows, int64_t stride) {
          const cuda::AttentionCase sizes{.batch = batch, .heads = 1, .length = length, .head_dim = 8, .scale = 0.35f};
          const auto part = [&](int i) { return cuda::HeadRows{rows + i * 8 * kWidth, stride, 0, stride}; };
          std::vector<float> log_sum_exp(apart.rows), along(apart.rows);
          cuda::attention_forward(sizes, {part(0), part(1), part(2), part(3), log_sum_exp.data()}, kType, nullptr);
          cuda::attention_backward(sizes,
                                   {part(0), part(1), part(2), part(3), part(4), part(5), part(6), part(7),
                                    log_sum_exp.data(), along.data()},
                                   kType, nullptr);
        },
        apart);
  };
  check_attention(1, kRows, {});
  check_attention(kRows, 1, {});
  // The second tile, whose first row is at most the 128th, begins more than 2^32 numbers after the first one.
  check_attention(1, 140, {.rows = 140, .numbers = (int64_t{1} << 26) + kColumns});
}

TEST_CASE("masks of elements beyond 2^34, whose blocks are counted in more than 32 bits, equal those of the CPU") {
  constexpr uint64_t kSeed = 5;
  constexpr uint32_t kOp = 3, kStep = 2;
  const int64_t rows = 50, place = int64_t{1} << 33;
  const std::vector<int64_t> samples(rows, 7);
  std::vector<int64_t> places(rows);
  std::iota(places.begin(), places.end(), place);
  for (const int64_t n : {8, 7}) {  // read four at a time, and one by one
    CAPTURE(n);
    const Array ones(Number::fp32, rows * n, 1);
    Array kept(Number::fp32, rows * n);
    cuda::bias_dropout_add({.x = ones.data(),
                            .y = kept.data(),
                            .rows = rows,
                            .n = n,
                            .dropout = {kSeed, kOp, kStep, 0.5, samples.data(), places.data(), 0, rows}},
                           Number::fp32, Number::fp32, nullptr);
    std::vector<uint8_t> keep(rows * n);
    random_keep({kSeed, kOp, kStep, 7}, place * n, rows * n, 0.5, keep.data());
    int64_t wrong = 0;
    for (int64_t i = 0; i < rows * n; ++i) wrong += (kept[i] != 0) != (keep[i] != 0);
    CHECK(wrong == 0);
  }
  for (const int64_t positions : {int64_t{1} << 17, (int64_t{1} << 17) + 1}) {
    CAPTURE(positions);
    // Scores are 0 and values the rows of the identity: results are the probabilities that are kept.
    const int64_t length = 20, head_dim = 20, head = 40;
    const Array zeros(Number::fp32, length * head_dim);
    Array values(Number::fp32, length * head_dim), out(Number::fp32, length * head_dim), sums(Number::fp32, length);
    for (int64_t i = 0; i < length; ++i) values.set(i * head_dim + i, 1);
    const auto rows_of = [&](const Array& array) {
      return cuda::HeadRows{const_cast<void*>(array.data()), 0, 0, head_dim};
    };
    cuda::attention_forward({.batch = 1,
                             .heads = 1,
                             .length = length,
                             .head_dim = head_dim,
                             .scale = 1,
                             .seed = kSeed,
                             .op = kOp,
                             .step = kStep,
                             .probability = 0.5,
                             .samples = samples.data(),
                             .first_head = head,
                             .max_positions = positions},
                            {rows_of(zeros), rows_of(zeros), rows_of(values), rows_of(out), sums.floats()},
                            Number::fp32, nullptr);
    int64_t wrong = 0;
    for (int64_t i = 0; i < length; ++i) {
      std::vector<uint8_t> keep(length);
      random_keep({kSeed, kOp, kStep, 7}, (head * positions + i) * positions, i + 1, 0.5, keep.data());
      for (int64_t j = 0; j < length; ++j) wrong += (out[i * head_dim + j] != 0) != (keep[j] != 0);
    }
    CHECK(wrong == 0);
  }
}

}  // namespace shardline::far_rows_test
