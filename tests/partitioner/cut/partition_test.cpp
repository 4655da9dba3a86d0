#include "partitioner/cut/partition.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>
#include <random>

#include "core/error.h"

#include "tests/catch.h"

namespace shardline::partition_test {
namespace {

double at(const std::vector<double>& values, size_t i) {
  return values.empty() ? 0 : values[i];
}

// Written from the contract, layer by layer: returns the most expensive stage's cost; infinite if a cap is exceeded.
double bottleneck(const PartitionProblem& problem, const std::vector<int>& chunk_of_layer) {
  const auto stages =
      static_cast<size_t>(*std::max_element(problem.stage_of_chunk.begin(), problem.stage_of_chunk.end()) + 1);
  std::vector<double> seconds(stages), bytes(stages);
  double all_seconds = 0, all_bytes = 0;
  const double most =
      problem.kept_counts.empty() ? 1 : *std::max_element(problem.kept_counts.begin(), problem.kept_counts.end());
  for (size_t i = 0; i < problem.seconds.size(); ++i) {
    const auto chunk = static_cast<size_t>(chunk_of_layer[i]);
    const auto stage = static_cast<size_t>(problem.stage_of_chunk[chunk]);
    seconds[stage] += problem.seconds[i];
    bytes[stage] += at(problem.state_bytes, i) +
                    (problem.kept_counts.empty() ? 1 : problem.kept_counts[chunk]) * at(problem.kept_bytes, i);
    all_seconds += problem.seconds[i];
    all_bytes += at(problem.state_bytes, i) + most * at(problem.kept_bytes, i);
    if (i + 1 == problem.seconds.size() || chunk_of_layer[i + 1] == chunk_of_layer[i]) continue;
    const auto next = static_cast<size_t>(problem.stage_of_chunk[chunk + 1]);
    if (next == stage) continue;
    seconds[stage] += at(problem.cut_seconds, i);
    seconds[next] += at(problem.cut_seconds, i);
  }
  const double alpha = problem.memory_weight;
  if (alpha == 0) all_seconds = 1;
  if (alpha == 1) all_bytes = 1;
  double worst = 0;
  for (size_t stage = 0; stage < stages; ++stage) {
    if (!problem.memory_caps.empty() && bytes[stage] > problem.memory_caps[stage])
      return std::numeric_limits<double>::infinity();
    worst = std::max(worst,
                     (alpha > 0 ? alpha * bytes[stage] / all_bytes : 0) + (1 - alpha) * seconds[stage] / all_seconds);
  }
  return worst;
}

// The result of trying all ways to cut.
double least_by_search(const PartitionProblem& problem) {
  const size_t n = problem.seconds.size(), chunks = problem.stage_of_chunk.size();
  double least = std::numeric_limits<double>::infinity();
  std::vector<bool> cut_behind(n - 1);
  std::fill(cut_behind.end() - static_cast<std::ptrdiff_t>(chunks - 1), cut_behind.end(), true);
  do {
    std::vector<int> chunk(n);
    for (size_t i = 1; i < n; ++i) chunk[i] = chunk[i - 1] + (cut_behind[i - 1] ? 1 : 0);
    least = std::min(least, bottleneck(problem, chunk));
  } while (std::next_permutation(cut_behind.begin(), cut_behind.end()));
  return least;
}

class Random {
 public:
  int whole(int from, int to) { return std::uniform_int_distribution(from, to)(random_); }
  double real() { return std::uniform_real_distribution(0.0, 1.0)(random_); }
  std::vector<double> costs(size_t count, bool ties) {
    std::vector<double> values(count);
    for (auto& value : values) value = ties ? whole(0, 3) : real();
    return values;
  }

 private:
  std::mt19937 random_{11};
};

std::vector<int> chunks_of_stages(int stages, int v, bool down_and_up) {
  std::vector<int> stage_of_chunk;
  for (int chunk = 0; chunk < stages * v; ++chunk)
    stage_of_chunk.push_back(down_and_up && chunk / stages % 2 ? stages - 1 - chunk % stages : chunk % stages);
  return stage_of_chunk;
}

PartitionProblem random_problem(Random& random) {
  const int stages = random.whole(1, 4), v = random.whole(1, 3), chunks = stages * v;
  const auto layers = static_cast<size_t>(random.whole(chunks, std::max(chunks, 12)));
  const bool ties = random.whole(0, 1);
  PartitionProblem problem{.stage_of_chunk = chunks_of_stages(stages, v, random.whole(0, 1)),
                           .seconds = random.costs(layers, ties)};
  if (random.whole(0, 1)) problem.cut_seconds = random.costs(layers, ties);
  if (random.whole(0, 2)) {
    problem.state_bytes = random.costs(layers, ties);
    problem.kept_bytes = random.costs(layers, ties);
    problem.memory_weight = random.whole(0, 2) ? random.real() : random.whole(0, 1);
    for (int chunk = 0; chunk < chunks; ++chunk) problem.kept_counts.push_back(random.whole(1, chunks));
    if (random.whole(0, 1))
      for (int stage = 0; stage < stages; ++stage)
        problem.memory_caps.push_back(static_cast<double>(layers) * 2.5 / stages * (1 + 2 * random.real()));
  }
  return problem;
}

}  // namespace

TEST_CASE("no other partition is better, on a thousand random chains") {
  Random random;
  int impossible = 0, several = 0, weighted = 0;
  for (int round = 0; round < 1000; ++round) {
    const auto problem = random_problem(random);
    CAPTURE(round, problem.seconds, problem.cut_seconds, problem.state_bytes, problem.kept_bytes, problem.kept_counts,
            problem.memory_caps, problem.memory_weight, problem.stage_of_chunk);
    const double least = least_by_search(problem);
    if (least == std::numeric_limits<double>::infinity()) {
      REQUIRE_THROWS_AS(partition(problem), ConfigError);
      ++impossible;
      continue;
    }
    const auto found = partition(problem);
    REQUIRE(found.exact);
    REQUIRE(found.chunk_of_layer.size() == problem.seconds.size());
    REQUIRE(found.bottleneck == Approx(least).epsilon(1e-9).margin(1e-12));
    REQUIRE(bottleneck(problem, found.chunk_of_layer) == Approx(least).epsilon(1e-9).margin(1e-12));
    several += problem.stage_of_chunk.size() > 4;
    weighted += problem.memory_weight > 0;
  }
  CHECK(impossible > 20);
  CHECK(several > 200);
  CHECK(weighted > 200);
}

TEST_CASE("every layer is in exactly one chunk, chunks are contiguous, and none is empty") {
  Random random;
  for (int round = 0; round < 300; ++round) {
    const int stages = random.whole(1, 8), v = random.whole(1, 4), chunks = stages * v;
    const auto layers = static_cast<size_t>(chunks + random.whole(0, 40));
    PartitionProblem problem{.stage_of_chunk = chunks_of_stages(stages, v, round % 2),
                             .seconds = std::vector(layers, 1.0)};
    problem.seconds.front() = 3 * random.real();
    problem.seconds.back() = 3 * random.real();
    const auto found = partition(problem).chunk_of_layer;
    CAPTURE(stages, v, layers);
    REQUIRE(found.size() == layers);
    REQUIRE(found.front() == 0);
    REQUIRE(found.back() == chunks - 1);
    for (size_t i = 1; i < layers; ++i) REQUIRE((found[i] == found[i - 1] || found[i] == found[i - 1] + 1));
  }
}

TEST_CASE("models of equal blocks are cut exactly at any size, in milliseconds") {
  const auto start = std::chrono::steady_clock::now();
  for (const int stages : {4, 8, 16, 35})
    for (const int v : {2, 3}) {
      PartitionProblem problem{.stage_of_chunk = chunks_of_stages(stages, v, false), .seconds = std::vector(107, 1.0)};
      problem.seconds.front() = 0.01;
      problem.seconds.back() = 0.47;
      const auto found = partition(problem);
      CAPTURE(stages, v);
      CHECK(found.exact);
      // Stages of whole blocks, and one that also has the head.
      double least = 200;
      for (int blocks = 1; blocks < 107; ++blocks)  // the most that a stage without head may have
        for (int with_head = 0; with_head <= blocks; ++with_head)
          if ((stages - 1) * blocks + with_head >= 105)
            least = std::min(least, std::max(static_cast<double>(blocks), with_head + 0.47));
      CHECK(found.bottleneck >= least - 1e-9);
      CHECK(found.bottleneck <= least + 0.01 + 1e-9);
    }
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
}

TEST_CASE("caps that no assignment keeps are reported") {
  CHECK_THROWS_WITH(
      partition({.stage_of_chunk = {0, 1}, .seconds = {1, 1, 1}, .state_bytes = {5, 5, 5}, .memory_caps = {9, 9}}),
      Catch::Contains("3 layers") && Catch::Contains("use more stages"));
}

TEST_CASE("a stage that keeps more microbatches gets fewer layers") {
  PartitionProblem problem{.stage_of_chunk = {0, 1, 2, 3},
                           .seconds = std::vector(20, 1.0),
                           .kept_bytes = std::vector(20, 1.0),
                           .kept_counts = {4, 3, 2, 1},
                           .memory_weight = 1};
  const auto found = partition(problem).chunk_of_layer;
  std::vector<int> layers(4);
  for (const int chunk : found) ++layers[chunk];
  CHECK(layers == std::vector{2, 3, 5, 10});
  problem.memory_weight = 0;
  problem.memory_caps = {12, 30, 30, 30};
  const auto capped = partition(problem).chunk_of_layer;
  CHECK(std::count(capped.begin(), capped.end(), 0) <= 3);
}

}  // namespace shardline::partition_test
