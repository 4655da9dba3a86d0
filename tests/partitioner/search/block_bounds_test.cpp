#include "partitioner/search/block_bounds.h"

#include <algorithm>
#include <random>

#include "core/error.h"
#include "core/model/parameter_patterns.h"
#include "tests/partitioner/cost/published.h"
#include "tests/partitioner/planning.h"

#include "tests/catch.h"

namespace shardline::block_bounds_test {
namespace {

using Level = Sharding::Level;

class Random {
 public:
  int whole(int from, int to) { return std::uniform_int_distribution(from, to)(random_); }
  bool coin() { return whole(0, 1) == 1; }
  template <class Value>
  Value& one_of(std::vector<Value>& values) {
    return values[whole(0, static_cast<int>(values.size()) - 1)];
  }
  template <class Value>
  Value one_of(const std::vector<Value>& values) {
    return values[whole(0, static_cast<int>(values.size()) - 1)];
  }

 private:
  std::mt19937 random_{23};
};

const std::vector<Recompute> kStrategies = {
    {}, {What::attention}, {What::layers}, {What::layers, 2}, {What::layers, 3}, {What::layers, Recompute::kAll}};

// Draws one strategy for all blocks, or one for each block, with or without long runs of equal ones.
std::vector<Recompute> random_recompute(Random& random, const ModelSpec& spec) {
  const int runs = random.one_of<int>({1, 4, 16});  // number of blocks, on average, after which the strategy changes
  std::vector<Recompute> by_layer(spec.layers.size());
  Recompute now = random.one_of(kStrategies);
  const bool mixed = random.coin();
  for (size_t i = 0; i < by_layer.size(); ++i) {
    if (!spec.layers[i].is_block) continue;
    if (mixed && random.whole(1, runs) == 1) now = random.one_of(kStrategies);
    by_layer[i] = now;
  }
  return by_layer;
}

Sharding random_sharding(Random& random, int replicas) {
  Sharding sharding{.level = random.one_of<Level>({Level::none, Level::optimizer, Level::gradients, Level::weights})};
  if (sharding.level == Level::none) return sharding;
  sharding.degree = replicas;
  if (random.coin()) sharding.whole_below = 1000;
  if (random.coin()) sharding.most_gathered = random.whole(1, 100'000);
  if (random.coin()) sharding.most_reduced = random.whole(1, 100'000);
  return sharding;
}

// A random layout for which the model has enough layers.
Layout random_layout(Random& random, const ModelSpec& spec) {
  Layout layout;
  layout.schedule = random.one_of<ScheduleSource>(
      {"simple", "interleaved", "interleaved_1f1b", "interleaved_1f1b", "zb_h1", "zb_h2", "zbv", "dualpipev"});
  const auto layers = static_cast<int>(spec.layers.size());
  do {
    layout.pipeline = random.whole(1, 5);
    layout.chunks_per_stage = layout.schedule.kind == ScheduleKind::interleaved_1f1b ? random.whole(1, 5) : 1;
  } while (layout.pipeline * std::max(layout.chunks_per_stage, own_chunks_per_stage(layout.schedule.kind)) > layers);
  layout.microbatches = random.whole(1, 13);
  if (random.whole(0, 4) == 0) layout.active_microbatches = random.whole(1, layout.microbatches);
  layout.tensor = random.whole(1, 2);
  layout.sequence_parallel = layout.tensor > 1 && random.coin();
  layout.replicas = random.one_of<int>({1, 2, 4});
  layout.microbatch_size = random.whole(1, 2);
  layout.recompute = random_recompute(random, spec);
  layout.sharding = random_sharding(random, layout.replicas);
  layout.offload = {.enabled = random.coin(), .horizon = random.whole(0, 6), .everything = random.coin()};
  layout.states_on_host = random.whole(0, 4) == 0;
  layout.on_accelerators = random.coin();
  return layout;
}

// Looks for a cut that needs little memory: moves chunk boundaries back and forth from a random start.
class LightCut {
 public:
  LightCut(Random& random, const Workload& workload, const Layout& layout)
      : random_(random), workload_(workload), layout_(layout), schedule_(training_schedule(layout)) {
    sizes.assign(schedule_.chunks(), 1);
    for (size_t placed = sizes.size(); placed < workload.spec.layers.size(); ++placed) ++random.one_of(sizes);
    bytes = count();
    for (int move = 0; move < 60; ++move) improve();
  }

  std::vector<int> sizes;  // layers by chunk
  double bytes = 0;        // on the largest stage

 private:
  double count() const {
    std::vector<int> chunk_of_layer;
    for (size_t chunk = 0; chunk < sizes.size(); ++chunk)
      chunk_of_layer.insert(chunk_of_layer.end(), sizes[chunk], static_cast<int>(chunk));
    double most = 0;
    for (const auto& memory : memory_by_stage({workload_, layout_, schedule_, chunk_of_layer}))
      most = std::max(most, memory.total());
    return most;
  }

  void improve() {
    const auto before = sizes;
    int& from = random_.one_of(sizes);
    const int moved = random_.whole(0, std::min(from - 1, 3));
    from -= moved;
    random_.one_of(sizes) += moved;
    const double now = count();
    if (now <= bytes)
      bytes = now;
    else
      sizes = before;
  }

  Random& random_;
  const Workload& workload_;
  const Layout& layout_;
  const Schedule schedule_;
};

// Compares the bounds with the exact count for a cut that needs little memory.
void check_bounds(Random& random, const Workload& workload, const Layout& layout) {
  const int blocks = workload.spec.block_count();
  const StageNeeds bounds(layout, block_needs(workload, layout));
  const LightCut cut(random, workload, layout);
  CAPTURE(to_string(layout), layout.active_microbatches, workload.software.own_ops, cut.sizes);
  CHECK(bounds.of_largest_stage(blocks) <= cut.bytes);
  CHECK(bounds.places(cut.bytes) >= blocks);
}

}  // namespace

TEST_CASE("no layout has a cut that needs less than its bound") {
  Random random;
  for (const int blocks : {4, 11, 24}) {
    Workload workload{.spec = published_gpt(4, 64, blocks, false, 16, 32), .sequence_length = 32};
    for (int i = 0; i < 500; ++i) {
      workload.software.own_ops = random.coin();
      check_bounds(random, workload, random_layout(random, workload.spec));
    }
  }
}

// Users' modules with equal parameters may keep different amounts, and may share their parameters.
TEST_CASE("bounds distinguish blocks of equal shapes, and count shared parameters once") {
  Random random;
  const ModelSpec equal = published_gpt(4, 64, 11, false, 16, 32);
  for (int i = 0; i < 300; ++i) {
    Workload workload{.spec = equal, .sequence_length = 32};
    workload.software.own_ops = true;  // kept bytes are those that the layers state
    std::string owner;                 // the block whose parameters others share
    const bool keeps_less = random.coin(), shares = random.coin();
    for (auto& layer : workload.spec.layers) {
      if (!layer.is_block || random.coin()) continue;
      if (keeps_less) {
        layer.code = "keeps little";
        layer.kept = [](const KeptCase& at) { return KeptBytes{.activations = at.rows * 8}; };
        layer.passes = [](const KeptCase& at) { return PassBytes{at.rows * 8, at.rows * 8, at.rows * 8}; };
      }
      if (!shares) continue;
      if (!owner.empty())
        for (auto& param : layer.params) param.tied_to = cat(owner, ".", param.name);
      else
        owner = layer.name;
    }
    check_bounds(random, workload, random_layout(random, workload.spec));
  }
}

// Frozen blocks have no gradients and states; those before the first trained block only run forward and keep nothing.
TEST_CASE("bounds account for frozen blocks") {
  Random random;
  for (int i = 0; i < 300; ++i) {
    ModelSpec spec = published_gpt(4, 64, 11, false, 16, 32);
    std::vector<NamePattern> trained = {"head.*"};
    for (const auto& layer : spec.layers)
      if (layer.is_block && random.whole(0, 3) == 0) trained.emplace_back(layer.name + ".*");
    freeze_others(trained, spec, "a test");
    for (auto& layer : spec.layers) layer.work = nullptr;  // determined anew
    add_costs_of_ops(spec);
    Workload workload{.spec = spec, .sequence_length = 32};
    workload.software.own_ops = random.coin();
    check_bounds(random, workload, random_layout(random, workload.spec));
  }
}

// Long groups need a lot of memory while they run, so what each block keeps matters only with many microbatches.
TEST_CASE("bounds account for the group of each recomputed block") {
  Random random;
  const Workload workload{.spec = published_gpt(4, 64, 24, false, 16, 32), .sequence_length = 32};
  for (const auto& first : kStrategies)
    for (const auto& others : kStrategies) {
      Layout layout{.pipeline = 2, .microbatches = 64, .schedule = "simple"};
      for (const auto& layer : workload.spec.layers) layout.recompute.push_back(layer.is_block ? others : Recompute{});
      layout.recompute[1] = first;
      check_bounds(random, workload, layout);
    }
}

}  // namespace shardline::block_bounds_test
