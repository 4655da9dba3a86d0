#include "engine/data/dataset/mixture.h"

#include <algorithm>
#include <map>

#include "core/error.h"
#include "engine/data/dataset/sample_order.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::mixture_test {
namespace {

using Catch::Contains;

const std::vector<MixedPart> kParts = {{.samples = 70, .weight = 2}, {.samples = 10, .weight = 1}, {20, 1}};

size_t part_of(uint32_t sample) {
  return sample < 70 ? 0 : sample < 80 ? 1 : 2;
}

}  // namespace

TEST_CASE("the parts of a mixture have the shares of their weights, rounded to whole samples") {
  const Mixture mixture(kParts);
  CHECK(mixture.samples() == 100);
  CHECK(mixture.count(0) == 50);
  CHECK(mixture.count(1) == 25);
  CHECK(mixture.count(2) == 25);
  const Mixture rounded({{1, 1}, {1, 1}, {5, 1}});  // 7 samples: 2.33 of each
  CHECK(rounded.count(0) == 3);
  CHECK(rounded.count(1) == 2);
  CHECK(rounded.count(2) == 2);
  CHECK(mixture.describe(1) == "25 samples of an epoch (25.0 %), 2.50 times its own 10");
  CHECK_THAT(message_of<DataError>([] {
               Mixture({{10, 1}, {10, 1000}});
             }),
             Contains("data.train_weights: 1 of 1001 gives no sample in an epoch of 20"));
  CHECK_THAT(message_of<DataError>([] { Mixture({{10, 1}, {0, 1}}); }), Contains("gives no samples"));
}

TEST_CASE("no sample of a part is repeated before all have been used, over all epochs") {
  const Mixture mixture(kParts);
  for (const bool shuffle : {true, false}) {
    std::map<size_t, std::vector<uint32_t>> drawn;
    for (int64_t epoch = 0; epoch < 14; ++epoch) {
      const auto samples = mixture.samples_of_epoch(epoch, 7, shuffle);
      CHECK(samples == mixture.samples_of_epoch(epoch, 7, shuffle));
      REQUIRE(samples.size() == 100);
      for (const uint32_t sample : samples) drawn[part_of(sample)].push_back(sample);
      for (size_t part = 0; part < 3; ++part) CHECK(std::ssize(drawn[part]) == (epoch + 1) * mixture.count(part));
    }
    for (size_t part = 0; part < 3; ++part) {
      const int64_t size = kParts[part].samples;
      std::vector<uint32_t> previous;
      for (int64_t begin = 0; begin + size <= std::ssize(drawn[part]); begin += size) {
        std::vector<uint32_t> own(drawn[part].begin() + begin, drawn[part].begin() + begin + size);
        if (!previous.empty())
          CHECK((own != previous) == shuffle);  // shuffled again, or again in the order of the data
        previous = own;
        std::ranges::sort(own);
        CHECK(std::ranges::adjacent_find(own) == own.end());
      }
    }
  }
}

TEST_CASE("without shuffling, parts alternate evenly") {
  const auto samples = Mixture(kParts).samples_of_epoch(0, 7, false);
  for (int64_t count = 1; count <= 100; ++count) {
    std::vector<double> used(3);
    for (int64_t i = 0; i < count; ++i) ++used[part_of(samples[i])];
    for (size_t part = 0; part < 3; ++part) CHECK(std::abs(used[part] - count * (part == 0 ? 0.5 : 0.25)) <= 1.01);
  }
  CHECK(samples[0] == 0);
}

TEST_CASE("batches of a mixture follow the order of its epochs, which depends on the seed") {
  SampleOrderOptions options{.samples = 100, .global_batch = 8, .seed = 3, .weights = {2, 1, 1}};
  options.part_samples = {70, 10, 20};
  SampleOrder order(options);
  CHECK(order.batches_per_epoch() == 13);
  for (const int64_t epoch : {2, 0}) {
    const auto expected = Mixture(kParts).samples_of_epoch(epoch, 3, true);
    std::vector<uint32_t> samples;
    for (int64_t batch = 0; batch < 13; ++batch)
      for (const int64_t sample : order.samples_of_batch(epoch, batch)) samples.push_back(sample);
    CHECK(samples == expected);
  }
  options.seed = 4;
  CHECK(SampleOrder(options).samples_of_batch(0, 0) != order.samples_of_batch(0, 0));
  options.shuffle = false;
  CHECK(SampleOrder(options).samples_of_batch(0, 0).size() == 8);
}

}  // namespace shardline::mixture_test
