#include "partitioner/cut/module_tree.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <set>

#include "core/error.h"

#include "tests/catch.h"

namespace shardline::module_tree_test {
namespace {

using Costs = std::vector<double>;
using Stages = std::vector<int>;

// "name cost" below a parent; bytes and seconds are the same number.
ModuleNode node(const std::string& path, int parent, double cost, std::vector<std::string> sharing = {}) {
  return {.path = path, .parent = parent, .bytes = cost, .seconds = cost, .sharing = std::move(sharing)};
}

ModuleTree flat(const Costs& costs) {
  ModuleTree tree = {node("model", -1, 0)};
  for (size_t i = 0; i < costs.size(); ++i) tree.push_back(node(cat("m", i), 0, costs[i]));
  return tree;
}

double most_expensive(const Costs& costs, const std::vector<size_t>& ends) {
  double most = 0;
  for (size_t s = 0, begin = 0; s < ends.size(); begin = ends[s++])
    most = std::max(most, std::accumulate(costs.begin() + static_cast<std::ptrdiff_t>(begin),
                                          costs.begin() + static_cast<std::ptrdiff_t>(ends[s]), 0.0));
  return most;
}

// Every way to cut `costs` into `count` runs.
double least_by_search(const Costs& costs, size_t count) {
  double least = std::numeric_limits<double>::infinity();
  std::vector<size_t> ends;
  const std::function<void()> extend = [&] {
    if (ends.size() + 1 == count) {
      ends.push_back(costs.size());
      least = std::min(least, most_expensive(costs, ends));
      ends.pop_back();
      return;
    }
    for (size_t end = (ends.empty() ? 0 : ends.back()) + 1; end < costs.size(); ++end) {
      ends.push_back(end);
      extend();
      ends.pop_back();
    }
  };
  extend();
  return least;
}

// The largest possible value of the smallest cost per seat, over every allocation; parts without a seat do not count.
double best_by_search(const Costs& costs, size_t seats, size_t part = 0) {
  if (part == costs.size()) return seats == 0 ? std::numeric_limits<double>::infinity() : 0;
  double best = 0;
  for (size_t held = 0; held <= seats; ++held) {
    const double rest = best_by_search(costs, seats - held, part + 1);
    best = std::max(best, held == 0 ? rest : std::min(rest, costs[part] / static_cast<double>(held)));
  }
  return best;
}

struct Random {
  std::mt19937 engine{5};
  int whole(int from, int to) { return std::uniform_int_distribution(from, to)(engine); }
  double cost(bool ties) { return ties ? whole(0, 3) : std::uniform_real_distribution(0.0, 1.0)(engine); }
};

ModuleTree random_tree(Random& random) {
  const int count = random.whole(1, 40), deepest = random.whole(1, 5);
  const bool ties = random.whole(0, 1);
  ModuleTree tree = {node("model", -1, random.cost(ties))};
  std::vector<int> around = {0};  // the module that comes next
  for (int i = 1; i < count; ++i) {
    while (around.size() > 1 && (random.whole(0, 2) == 0 || static_cast<int>(around.size()) > deepest))
      around.pop_back();
    tree.push_back({.path = cat("m", i),
                    .parent = around.back(),
                    .bytes = random.cost(ties),
                    .seconds = random.cost(ties),
                    .sharing = {}});
    around.push_back(i);
  }
  for (int pairs = random.whole(0, 3); pairs > 0; --pairs)
    for (int holder = 0; holder < 2; ++holder)
      tree[random.whole(0, count - 1)].sharing.push_back(cat("shared ", pairs));
  return tree;
}

// Modules without children that share nothing: each stays a node of its own, without children.
int leaves(const ModuleTree& tree) {
  int count = 0;
  for (size_t i = 0; i < tree.size(); ++i)
    count += tree[i].sharing.empty() && std::none_of(tree.begin(), tree.end(), [&](const ModuleNode& other) {
               return other.parent == static_cast<int>(i);
             });
  return count;
}

}  // namespace

TEST_CASE("runs of modules are cut where the most expensive is cheapest") {
  CHECK(cut_evenly({10, 1, 1, 1}, 2) == std::vector<size_t>{1, 4});
  CHECK(cut_evenly({1, 1, 1, 10}, 2) == std::vector<size_t>{3, 4});
  CHECK(cut_evenly({1, 1, 1, 1}, 4) == std::vector<size_t>{1, 2, 3, 4});
  CHECK(cut_evenly({2, 3, 4, 5, 1}, 3) == std::vector<size_t>{2, 3, 5});
  CHECK(cut_evenly({1, 1, 1}, 2) == std::vector<size_t>{1, 3});  // equally good: the earlier segment is shorter
  Random random;
  for (int round = 0; round < 1000; ++round) {
    Costs costs(static_cast<size_t>(random.whole(1, 9)));
    const bool ties = random.whole(0, 1);
    for (auto& cost : costs) cost = random.cost(ties);
    const auto count = static_cast<size_t>(random.whole(1, static_cast<int>(costs.size())));
    CAPTURE(costs, count);
    const auto ends = cut_evenly(costs, count);
    REQUIRE(ends.size() == count);
    REQUIRE(ends.back() == costs.size());
    REQUIRE(std::adjacent_find(ends.begin(), ends.end(), std::greater_equal<>()) == ends.end());
    REQUIRE(most_expensive(costs, ends) == Approx(least_by_search(costs, count)));
  }
}

TEST_CASE("seats go where the quotient is largest") {
  const auto seats_of = [](const Costs& costs, size_t seats) {
    return allocate_seats(costs, std::vector<size_t>(costs.size(), seats), seats);
  };
  CHECK(seats_of({100, 80, 30, 20}, 8) == std::vector<size_t>{0, 1, 0, 1, 0, 2, 1, 0});  // a textbook election
  CHECK(seats_of({6, 4}, 3) == std::vector<size_t>{0, 1, 0});
  CHECK(seats_of({9, 1}, 3) == std::vector<size_t>{0, 0, 0});
  CHECK(seats_of({2, 1}, 2) == std::vector<size_t>{0, 1});  // 1 and 1: the one that has no seat yet
  CHECK(seats_of({0, 0, 0}, 4) == std::vector<size_t>{0, 1, 2, 0});
  CHECK(allocate_seats({9, 1}, {1, 2}, 3) == std::vector<size_t>{0, 1, 1});
  CHECK(allocate_seats({9, 1}, {1, 1}, 3) == std::vector<size_t>{0, 1});
  Random random;
  for (int round = 0; round < 300; ++round) {
    Costs costs(static_cast<size_t>(random.whole(1, 4)));
    for (auto& cost : costs) cost = random.cost(false);
    const auto seats = static_cast<size_t>(random.whole(1, 7));
    Costs held(costs.size());
    for (const size_t part : seats_of(costs, seats)) ++held[part];
    double least = std::numeric_limits<double>::infinity();
    for (size_t part = 0; part < costs.size(); ++part)
      if (held[part] > 0) least = std::min(least, costs[part] / held[part]);
    CAPTURE(costs, seats);
    REQUIRE(least == Approx(best_by_search(costs, seats)));
  }
}

TEST_CASE("a chain of modules is cut into a run for each stage") {
  CHECK(assign_tree(flat({10, 1, 1, 1}), 2, 0) == Stages{0, 0, 1, 1, 1});
  CHECK(assign_tree(flat({1, 1, 1, 1, 1, 1}), 3, 0.5) == Stages{0, 0, 0, 1, 1, 2, 2});
  CHECK(assign_tree(flat({1, 2, 3}), 1, 0.8) == Stages{0, 0, 0, 0});
}

TEST_CASE("stages go down the tree, as calculated by hand") {
  // encoder 6 = a 4 + b 2, decoder 3, head 3; three stages. Cut: {encoder} 6, {decoder} 3, {head} 3. Quotients: 6 -> 0;
  // then 3, 3 and 3: the decoder, which has none and is first; then the head. One each.
  const ModuleTree even = {node("model", -1, 0),    node("encoder", 0, 0), node("encoder.a", 1, 4),
                           node("encoder.b", 1, 2), node("decoder", 0, 3), node("head", 0, 3)};
  CHECK(assign_tree(even, 3, 0) == Stages{0, 0, 0, 0, 1, 2});
  // encoder 12 = a 6 + b 6, decoder 4. Cut: 12 | 4. Quotients: encoder 12, then encoder 6, then 4 and 4: the decoder.
  // So the encoder has stages 0 and 1, one for each child.
  const ModuleTree heavy = {node("model", -1, 0), node("encoder", 0, 0), node("encoder.a", 1, 6),
                            node("encoder.b", 1, 6), node("decoder", 0, 4)};
  CHECK(assign_tree(heavy, 3, 0) == Stages{0, 0, 0, 1, 2});
  // Two stages: encoder 12 against 4; the second quotient, 6, is the encoder's, too. The decoder has no stage of its
  // own and stands on its parent's.
  CHECK(assign_tree(heavy, 2, 0) == Stages{0, 0, 0, 1, 0});
  // Quotients 6, 5, 3: the first run has stages 0 and 2, the second has 1.
  const ModuleTree apart = {node("model", -1, 0), node("a", 0, 0), node("a.0", 1, 3), node("a.1", 1, 3),
                            node("b", 0, 5)};
  CHECK(assign_tree(apart, 3, 0) == Stages{0, 0, 0, 2, 1});
  // A run of several modules with several stages is cut again: a 10 | {b 4, c 4}, whose quotients are 10, 8, then 5 and
  // 4, but a can use one stage only.
  ModuleTree again = {node("model", -1, 0), node("a", 0, 10), node("b", 0, 4), node("c", 0, 4)};
  CHECK(assign_tree(again, 2, 0) == Stages{0, 0, 1, 1});
  CHECK(assign_tree(flat({4, 4, 1}), 3, 0) == Stages{0, 0, 1, 2});
}

TEST_CASE("memory_weight says what is balanced") {
  ModuleTree tree = flat({0, 0, 0, 0});
  for (size_t i = 1; i < 5; ++i) tree[i].bytes = i == 1 ? 9 : 1, tree[i].seconds = i == 4 ? 9 : 1;
  CHECK(assign_tree(tree, 2, 1) == Stages{0, 0, 1, 1, 1});
  CHECK(assign_tree(tree, 2, 0) == Stages{0, 1, 1, 1, 0});  // the most expensive run gets the first stage
  CHECK(assign_tree(tree, 2, 0.5) == Stages{0, 0, 0, 1, 1});
}

TEST_CASE("modules that share a parameter are one") {
  // embedding 2 and head 3 become 5, where the embedding runs; then blocks of 4. Cut: 5 | 8, of which the second gets
  // 0.
  const ModuleTree tree = {node("model", -1, 0), node("embedding", 0, 2, {"words"}), node("h.0", 0, 4),
                           node("h.1", 0, 4), node("head", 0, 3, {"words"})};
  CHECK(assign_tree(tree, 2, 0) == Stages{0, 1, 0, 0, 1});
  // Below different parents: they stand below what contains both, and leave their parents.
  const ModuleTree deep = {node("model", -1, 0), node("a", 0, 0),          node("a.x", 1, 3, {"w"}), node("a.y", 1, 6),
                           node("b", 0, 0),      node("b.x", 4, 3, {"w"}), node("b.y", 4, 6)};
  const auto stages = assign_tree(deep, 3, 0);
  CHECK(stages[2] == stages[5]);
  CHECK(std::set<int>{stages[2], stages[3], stages[6]}.size() == 3);
}

TEST_CASE("no module is lost, whatever the tree and the number of stages") {
  Random random;
  int enough = 0;
  for (int round = 0; round < 2000; ++round) {
    const auto tree = random_tree(random);
    const int stages = random.whole(1, 9);
    const double weight = random.whole(0, 2) / 2.0;
    const auto found = assign_tree(tree, stages, weight);
    REQUIRE(found.size() == tree.size());
    for (const int stage : found) REQUIRE((stage >= 0 && stage < stages));
    for (size_t i = 0; i < tree.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        for (const auto& shared : tree[i].sharing)
          if (std::find(tree[j].sharing.begin(), tree[j].sharing.end(), shared) != tree[j].sharing.end())
            REQUIRE(found[i] == found[j]);
    REQUIRE(assign_tree(tree, stages, weight) == found);
    if (leaves(tree) < stages) continue;
    ++enough;
    REQUIRE(std::set<int>(found.begin(), found.end()).size() == static_cast<size_t>(stages));
  }
  CHECK(enough > 200);
}

TEST_CASE("equal modules use every stage, and their costs are as even as can be") {
  for (int stages = 1; stages <= 8; ++stages)
    for (size_t modules = stages; modules < 20; ++modules) {
      const auto found = assign_tree(flat(Costs(modules, 1)), stages, 0.8);
      CAPTURE(stages, modules);
      std::vector<size_t> held(stages);
      for (size_t i = 1; i < found.size(); ++i) ++held[found[i]];
      const auto count = static_cast<size_t>(stages);
      CHECK(*std::max_element(held.begin(), held.end()) == (modules + count - 1) / count);
      CHECK(*std::min_element(held.begin(), held.end()) >= 1);
    }
}

TEST_CASE("a module is placed by its path or by the closest module that contains it") {
  const ModuleTree tree = {node("model", -1, 1),     node("a", 0, 1), node("a.x", 1, 1),
                           node("a.y", 1, 1, {"w"}), node("b", 0, 1), node("b.x", 4, 1, {"w"})};
  CHECK(assign_paths(tree, {}, 2, 3) == Stages{2, 2, 2, 2, 2, 2});
  CHECK(assign_paths(tree, {{"a", 1}, {"a.x", 0}, {"b.x", 1}}, 2, 3) == Stages{2, 1, 0, 1, 2, 1});
  CHECK_THROWS_WITH(assign_paths(tree, {{"a.z", 1}}, 0, 3), Catch::Contains("no module has the path a.z"));
  CHECK_THROWS_WITH(assign_paths(tree, {{"a", 3}}, 0, 3), Catch::Contains("module a is 3, but stages go from 0 to 2"));
  CHECK_THROWS_WITH(assign_paths(tree, {}, -1, 3), Catch::Contains("default_partition is -1"));
  CHECK_THROWS_WITH(assign_paths(tree, {{"b", 1}}, 0, 3),
                    Catch::Contains("a.y and b.x share a parameter, but are on stages 0 and 1"));
}

TEST_CASE("costs and weights that make no sense are refused") {
  CHECK_THROWS_AS(assign_tree(flat({1, -1}), 2, 0), ConfigError);
  CHECK_THROWS_AS(assign_tree(flat({1, std::numeric_limits<double>::quiet_NaN()}), 2, 0), ConfigError);
  CHECK_THROWS_AS(assign_tree(flat({1, 1}), 0, 0), ConfigError);
  CHECK_THROWS_AS(assign_tree(flat({1, 1}), 2, 1.5), ConfigError);
  CHECK_THROWS_AS(assign_tree({}, 2, 0.5), ConfigError);
}

}  // namespace shardline::module_tree_test
