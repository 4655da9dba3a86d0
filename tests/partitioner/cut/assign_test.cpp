#include "partitioner/cut/assign.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "core/error.h"

#include "tests/catch.h"

namespace shardline::assign_test {
namespace {

std::vector<double> stage_costs(const std::vector<double>& costs, const std::vector<int>& stage, int stages) {
  std::vector<double> sums(stages);
  for (size_t i = 0; i < costs.size(); ++i) sums[stage[i]] += costs[i];
  return sums;
}

double most_expensive(const std::vector<double>& sums) {
  return *std::max_element(sums.begin(), sums.end());
}

// Finds the smallest possible cost of the most expensive stage by trying all cuts.
double least_by_search(const std::vector<double>& costs, int stages) {
  const auto n = static_cast<int>(costs.size());
  double least = std::accumulate(costs.begin(), costs.end(), 0.0);
  std::vector<bool> cut_behind(n - 1);
  std::fill(cut_behind.end() - (stages - 1), cut_behind.end(), true);
  do {
    std::vector<int> stage(costs.size());
    for (size_t i = 1; i < costs.size(); ++i) stage[i] = stage[i - 1] + (cut_behind[i - 1] ? 1 : 0);
    least = std::min(least, most_expensive(stage_costs(costs, stage, stages)));
  } while (std::next_permutation(cut_behind.begin(), cut_behind.end()));
  return least;
}

// Cuts layers into stages of one chunk each.
std::vector<int> assign_stages(const std::vector<double>& costs, int stages) {
  std::vector<int> stage_of_chunk(static_cast<size_t>(stages));
  std::iota(stage_of_chunk.begin(), stage_of_chunk.end(), 0);
  return assign_chunks(costs, stage_of_chunk);
}

}  // namespace

TEST_CASE("no other partition has a cheaper most expensive stage") {
  std::mt19937 random(7);
  for (int round = 0; round < 1000; ++round) {
    const int layers = std::uniform_int_distribution(1, 10)(random);
    const int stages = std::uniform_int_distribution(1, layers)(random);
    std::vector<double> costs(layers);
    for (auto& cost : costs) cost = std::uniform_int_distribution(0, 9)(random);  // layers without cost, and many ties
    CAPTURE(costs, stages);
    const auto stage = assign_stages(costs, stages);
    REQUIRE(stage.size() == costs.size());
    REQUIRE(stage.front() == 0);
    REQUIRE(stage.back() == stages - 1);
    for (size_t i = 1; i < stage.size(); ++i) {
      const int step = stage[i] - stage[i - 1];
      REQUIRE((step == 0 || step == 1));  // chunks are contiguous, and every stage has a layer
    }
    REQUIRE(most_expensive(stage_costs(costs, stage, stages)) == least_by_search(costs, stages));
  }
}

TEST_CASE("among equally good partitions, the earlier stages are lighter") {
  CHECK(assign_stages({1, 1, 1, 1, 1}, 2) == std::vector{0, 0, 1, 1, 1});
  CHECK(assign_stages({2, 2, 2, 2, 2}, 3) == std::vector{0, 1, 1, 2, 2});
}

TEST_CASE("chunks are contiguous, none is empty, and moving a layer does not make the slowest stage faster") {
  std::mt19937 random(4);
  for (int round = 0; round < 500; ++round) {
    const int stages = std::uniform_int_distribution(1, 4)(random), v = std::uniform_int_distribution(1, 3)(random);
    const int chunks = stages * v, layers = chunks + std::uniform_int_distribution(0, 9)(random);
    std::vector<int> stage_of_chunk;  // round robin, or down and up
    for (int chunk = 0; chunk < chunks; ++chunk)
      stage_of_chunk.push_back(round % 2 && chunk / stages % 2 ? stages - 1 - chunk % stages : chunk % stages);
    std::vector<double> costs(layers);
    for (auto& cost : costs) cost = std::uniform_int_distribution(0, 9)(random);
    CAPTURE(costs, stage_of_chunk);
    const auto chunk = assign_chunks(costs, stage_of_chunk);
    const auto slowest = [&](const std::vector<int>& of_layer) {
      std::vector<int> stage;
      for (const int c : of_layer) stage.push_back(stage_of_chunk[c]);
      return most_expensive(stage_costs(costs, stage, stages));
    };
    REQUIRE(chunk.size() == costs.size());
    REQUIRE(chunk.front() == 0);
    REQUIRE(chunk.back() == chunks - 1);
    for (size_t i = 1; i < chunk.size(); ++i) REQUIRE((chunk[i] == chunk[i - 1] || chunk[i] == chunk[i - 1] + 1));
    REQUIRE(slowest(chunk) <= slowest(assign_stages(costs, chunks)));
    if (v == 1) REQUIRE(chunk == assign_stages(costs, chunks));
  }
  CHECK(assign_chunks({0, 1, 1, 1, 1, 4}, {0, 1, 1, 0}) == std::vector{0, 1, 1, 2, 2, 3});
  CHECK_THROWS_WITH(assign_chunks({1, 1, 1}, {0, 1, 1, 0}),
                    Catch::Contains("4 chunks for 2 stages") && Catch::Contains("only 3 layers"));
}

TEST_CASE("there can be at most one stage per layer") {
  CHECK(assign_stages({5, 1, 3}, 3) == std::vector{0, 1, 2});
  CHECK_THROWS_AS(assign_stages({5, 1, 3}, 4), ConfigError);
  CHECK_THROWS_WITH(assign_stages({5, 1, 3}, 4), Catch::Contains("use at most 3 stages"));
}

}  // namespace shardline::assign_test
