#include "optim/flat/flat_layout.h"

#include <algorithm>

#include "tests/catch.h"

namespace shardline::flat_layout_test {
namespace {

using Level = Sharding::Level;

struct Specs {
  ParamSpec norm{.name = "norm", .shape = {5}, .decays = false, .partial_over_t = true};
  ParamSpec weight{.name = "weight", .shape = {5, 3, 4}, .split_dim = 0, .deferred = true};
  ParamSpec bias{.name = "bias", .shape = {5, 3}, .split_dim = 0, .decays = false};
  ParamSpec table{.name = "table", .shape = {7, 30}};
  ParamSpec frozen{.name = "frozen", .shape = {40}, .split_dim = 0, .trainable = false};

  std::vector<NamedParam> named() const {
    return {{"l.frozen", &frozen}, {"l.norm", &norm}, {"l.weight", &weight}, {"l.bias", &bias}, {"l.table", &table}};
  }
};

const Segment& segment_of(const FlatLayout& layout, size_t param) {
  return layout.segments[layout.places[param].segment];
}

}  // namespace

TEST_CASE("each rank holds the expected part of a gradient") {
  const Specs s;
  CHECK(sharing_of(s.weight, 2) == Sharing::split);
  CHECK(sharing_of(s.norm, 2) == Sharing::partial);
  CHECK(sharing_of(s.table, 2) == Sharing::complete);
  for (const auto* spec : {&s.weight, &s.norm, &s.table}) CHECK(sharing_of(*spec, 1) == Sharing::complete);
}

TEST_CASE("offsets are aligned, do not overlap, and are in a segment of their kind") {
  const Specs s;
  const auto named = s.named();
  for (const auto level : {Level::none, Level::optimizer, Level::gradients, Level::weights})
    for (const int degree : {1, 2, 3})
      for (int ranks : {1, 2, 3, 8})
        for (int t = 0; t < ranks; ++t) {
          CAPTURE(static_cast<int>(level), degree, ranks, t);
          const auto layout =
              flat_layout(named, t, ranks, {.level = level, .degree = level == Level::none ? 1 : degree});
          std::vector<int64_t> end(layout.segments.size());
          for (size_t i = 0; i < named.size(); ++i) {
            const auto& place = layout.places[i];
            const auto& segment = segment_of(layout, i);
            CHECK(place.param.full_name == named[i].full_name);
            CHECK(place.begin == end[place.segment]);  // in the order given
            CHECK(place.begin % FlatLayout::kAlignment == 0);
            CHECK(place.shape == named[i].spec->local_shape(t, ranks));
            end[place.segment] = (place.begin + place.length + 31) / 32 * 32;
            CHECK(end[place.segment] <= segment.length);
            CHECK(segment.sharing == sharing_of(*named[i].spec, ranks));
            CHECK(segment.decays == named[i].spec->decays);
            CHECK(segment.trainable == named[i].spec->trainable);
            CHECK(segment.deferred == named[i].spec->deferred);
          }
          for (const auto& segment : layout.segments)
            CHECK(segment.length % (segment.shards * FlatLayout::kAlignment) == 0);
          CHECK(std::is_sorted(layout.segments.begin(), layout.segments.end(),
                               [](const Segment& a, const Segment& b) { return a.trainable && !b.trainable; }));
        }
}

TEST_CASE("tensors are divided among the expected number of ranks") {
  const Specs s;
  enum { kFrozen, kNorm, kWeight, kBias, kTable };
  const auto shards = [&](const Sharding& sharding, size_t param) {
    return segment_of(flat_layout(s.named(), 0, 2, sharding), param).shards;
  };
  const Sharding none, optimizer{.level = Level::optimizer, .degree = 4};
  for (const size_t param : {kFrozen, kNorm, kWeight, kBias, kTable}) CHECK(shards(none, param) == 1);
  CHECK(shards(optimizer, kFrozen) == 1);  // frozen parameters have no state
  CHECK(shards(optimizer, kNorm) == 8);    // its gradient is summed over T too
  CHECK(shards(optimizer, kWeight) == 4);
  CHECK(shards(optimizer, kTable) == 4);

  const Sharding weights{.level = Level::weights, .degree = 4, .whole_below = 60};
  CHECK(shards(weights, kTable) == 4);
  CHECK(shards(weights, kWeight) == 4);  // its logical size matters, not that of the rank's slice
  CHECK(shards(weights, kFrozen) == 1);
  CHECK(shards(weights, kBias) == 1);
  CHECK(shards({.level = Level::weights, .degree = 4}, kFrozen) == 4);
}

TEST_CASE("sharding does not change a parameter's position relative to its neighbours") {
  const Specs s;
  const auto plain = flat_layout(s.named(), 1, 3, {});
  for (const auto level : {Level::optimizer, Level::gradients, Level::weights}) {
    const auto sharded = flat_layout(s.named(), 1, 3, {.level = level, .degree = 5});
    for (size_t i = 0; i < plain.places.size(); ++i) CHECK(sharded.places[i].begin == plain.places[i].begin);
  }
}

TEST_CASE("a layout without parameters is empty") {
  const auto layout = flat_layout({}, 0, 1, {.level = Level::weights, .degree = 2});
  CHECK(layout.segments.empty());
  CHECK(layout.places.empty());
}

}  // namespace shardline::flat_layout_test
