// Compares steps and epochs with the rules of transformers 5 (Trainer.set_initial_training_values and _run_epoch), with
// the batches of accelerate's BatchSamplerShard.
#include "engine/data/dataset/sample_order.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <set>

#include "core/error.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::sample_order_test {

using Catch::Contains;
using Samples = std::vector<int64_t>;

namespace {

struct Case {
  int64_t samples, batch, replicas, accumulation;  // batch: samples per replica
  bool drop_last;
};

// Returns what the data loaders of all replicas yield together in an epoch, in file order. Where transformers would
// repeat the first samples to fill the last batches, the last batch is short.
std::vector<Samples> loader_batches(const Case& c) {
  std::vector<Samples> of_devices;  // BatchSampler: batches are dealt to the replicas in turn
  for (int64_t first = 0; first < c.samples; first += c.batch) {
    Samples batch(std::min(c.batch, c.samples - first));
    std::iota(batch.begin(), batch.end(), first);
    if (c.drop_last && std::ssize(batch) < c.batch) break;
    of_devices.push_back(batch);
  }
  std::vector<Samples> of_all;
  for (size_t i = 0; i < of_devices.size(); ++i) {
    if (i % c.replicas == 0) of_all.emplace_back();
    of_all.back().insert(of_all.back().end(), of_devices[i].begin(), of_devices[i].end());
  }
  // BatchSamplerShard: drop_last leaves out what not every process gets.
  if (c.drop_last && std::ssize(of_devices) % c.replicas != 0) of_all.pop_back();
  return of_all;
}

SampleOrder order_of(const Case& c) {
  return SampleOrder({.samples = c.samples,
                      .global_batch = c.batch * c.replicas * c.accumulation,
                      .loader_batches = c.accumulation,
                      .shuffle = false,
                      .drop_last = c.drop_last});
}

void check_against_transformers(const Case& c) {
  CAPTURE(c.samples, c.batch, c.replicas, c.accumulation, c.drop_last);
  const auto batches = loader_batches(c);
  const auto steps_in_epoch = std::ssize(batches);
  if (batches.empty()) {
    CHECK_THAT(message_of<DataError>([&] { order_of(c); }),
               Contains(cat("has ", c.samples, " samples")) && Contains(cat("batch of ", c.batch * c.replicas)));
    return;
  }
  SampleOrder order = order_of(c);
  const int64_t updates = steps_in_epoch / c.accumulation + (steps_in_epoch % c.accumulation > 0);
  REQUIRE(order.batches_per_epoch() == updates);
  int64_t step = -1;  // counts batches of the loaders, as there
  for (int64_t update = 0; update < updates; ++update) {
    Samples expected;
    bool sync = false;
    while (!sync) {
      ++step;
      expected.insert(expected.end(), batches[step].begin(), batches[step].end());
      sync = (step + 1) % c.accumulation == 0 || step + 1 == steps_in_epoch;
    }
    for (const int64_t epoch : {0, 1, 5}) {
      CHECK(order.samples_of_batch(epoch, update) == expected);
      CHECK(order.samples_in_batch(update) == std::ssize(expected));
      CHECK(order.epochs_after(epoch * updates + update) ==
            static_cast<double>(epoch) + static_cast<double>(step + 1) / static_cast<double>(steps_in_epoch));
    }
  }
}

}  // namespace

TEST_CASE(
    "an epoch has the steps and samples of transformers for every size of data and batch and every accumulation") {
  for (int64_t samples = 1; samples <= 40; ++samples)
    for (const int64_t batch : {1, 2, 3, 8})
      for (const int64_t replicas : {1, 2, 3})
        for (const int64_t accumulation : {1, 2, 4})
          for (const bool drop_last : {false, true})
            check_against_transformers({samples, batch, replicas, accumulation, drop_last});
}

TEST_CASE("dataloader_drop_last keeps a last step of fewer whole batches") {
  const auto steps = [](int64_t samples, bool drop_last) {
    SampleOrder order({.samples = samples, .global_batch = 32, .loader_batches = 4, .drop_last = drop_last});
    std::vector<int64_t> sizes;
    for (int64_t k = 0; k < order.batches_per_epoch(); ++k) sizes.push_back(order.samples_in_batch(k));
    return sizes;
  };
  CHECK(steps(80, true) == Samples{32, 32, 16});
  CHECK(steps(87, true) == Samples{32, 32, 16});
  CHECK(steps(87, false) == Samples{32, 32, 23});
  CHECK(steps(71, true) == Samples{32, 32});
  CHECK(steps(8, true) == Samples{8});
  CHECK(steps(1, false) == Samples{1});
}

TEST_CASE("with dataloader_drop_last, each shuffled epoch leaves out different samples") {
  SampleOrder all({.samples = 22, .global_batch = 12, .loader_batches = 3, .seed = 5});
  SampleOrder dropped({.samples = 22, .global_batch = 12, .loader_batches = 3, .seed = 5, .drop_last = true});
  Samples left_out;
  for (const int64_t epoch : {0, 1, 2}) {
    CHECK(dropped.samples_of_batch(epoch, 0) == all.samples_of_batch(epoch, 0));
    Samples rest = all.samples_of_batch(epoch, 1);
    REQUIRE(rest.size() == 10);
    left_out.insert(left_out.end(), rest.begin() + 8, rest.end());
    rest.resize(8);
    CHECK(dropped.samples_of_batch(epoch, 1) == rest);
  }
  CHECK(Samples(left_out.begin(), left_out.begin() + 2) != Samples(left_out.begin() + 2, left_out.begin() + 4));
}

namespace {

// Lengths from 1 to 97 in no particular order.
std::vector<int64_t> some_lengths(int64_t samples) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < samples; ++i) lengths.push_back(1 + i * i * 31 % 97);
  return lengths;
}

}  // namespace

TEST_CASE("samples of about the same length share a batch, and the first batch has the longest one", "[data][order]") {
  constexpr int64_t kSamples = 1003, kBatch = 8;
  const auto lengths = some_lengths(kSamples);
  const SampleOrderOptions options{.samples = kSamples, .global_batch = kBatch, .seed = 5, .group_by_length = true};
  SampleOrder order(options, lengths), again(options, lengths);
  SampleOrderOptions plain_options = options;
  plain_options.group_by_length = false;
  SampleOrder plain(plain_options);
  const auto spread = [&](SampleOrder& of) {  // between the longest and the shortest sample of a batch, on average
    int64_t sum = 0;
    for (int64_t k = 0; k < of.batches_per_epoch(); ++k) {
      int64_t most = 0, least = 1000;
      for (const int64_t sample : of.samples_of_batch(0, k)) {
        most = std::max(most, lengths[sample]);
        least = std::min(least, lengths[sample]);
      }
      sum += most - least;
    }
    return 1.0 * sum / of.batches_per_epoch();
  };
  CHECK(spread(order) < spread(plain) / 10);
  CHECK(lengths[order.samples_of_batch(0, 0)[0]] == std::ranges::max(lengths));
  CHECK(order.samples_in_batch(125) == 3);
  std::set<int64_t> seen;
  for (int64_t k = 0; k < order.batches_per_epoch(); ++k)
    for (const int64_t sample : order.samples_of_batch(3, k)) CHECK(seen.insert(sample).second);
  CHECK(std::ssize(seen) == kSamples);
  CHECK(again.samples_of_batch(3, 77) == order.samples_of_batch(3, 77));  // as after a resume
  CHECK(order.samples_of_batch(2, 0) != order.samples_of_batch(3, 0));
  // The parts of 31 batches, a quarter of the samples, are those of the permutation.
  std::multiset<int64_t> part, part_of_plain;
  for (int64_t k = 31; k < 62; ++k) {
    for (const int64_t sample : order.samples_of_batch(1, k)) part.insert(lengths[sample]);
    for (const int64_t sample : plain.samples_of_batch(1, k)) part_of_plain.insert(lengths[sample]);
  }
  std::vector<int64_t> moved;  // at most the one that changed places with the longest
  std::ranges::set_difference(part, part_of_plain, std::back_inserter(moved));
  CHECK(moved.size() <= 1);
}

TEST_CASE("fewer samples than four batches are sorted batch by batch", "[data][order]") {
  const std::vector<int64_t> lengths = {1, 2, 3, 4, 5, 6, 7};
  SampleOrder order({.samples = 7, .global_batch = 3, .seed = 1, .group_by_length = true}, lengths);
  std::vector<int64_t> last = order.samples_of_batch(0, 1);
  last.erase(last.begin());  // it may have changed places with the longest
  CHECK(std::ranges::is_sorted(last, std::ranges::greater()));
  CHECK(order.samples_of_batch(0, 0)[0] == 6);
  CHECK(order.samples_of_batch(0, 2).size() == 1);
}

}  // namespace shardline::sample_order_test
