#include "partitioner/search/search.h"

#include <cstdio>
#include <ctime>
#include <tuple>

#include "core/error.h"
#include "tests/partitioner/cost/published.h"
#include "tests/partitioner/planning.h"

#include "tests/catch.h"

namespace shardline::search_test {
namespace {

using Level = Sharding::Level;

Planning job_on_p4d(int nodes, const ModelSpec& spec, int length, int batch) {
  Planning job{{.spec = spec, .sequence_length = length, .global_batch = batch, .types = types_of(Precision::bf16)},
               {read_cluster(SHARDLINE_CLUSTERS "/p4d.24xlarge.json")}};
  job.machines.cluster.nodes = nodes;
  return job;
}

SearchSpace only(const Layout& layout) {
  return {.base = layout,
          .worlds = {layout.world()},
          .tensor = {layout.tensor},
          .pipeline = {layout.pipeline},
          .replicas = {layout.replicas},
          .microbatch_sizes = {layout.microbatch_size},
          .schedules = {layout.schedule},
          .chunks = {layout.chunks_per_stage},
          .recompute = {layout.recompute},
          .sharded = {layout.sharding.level},
          .sharding_degrees = {layout.sharding.degree},
          .sequence_parallel = {layout.sequence_parallel},
          .offload = {layout.offload}};
}

}  // namespace

TEST_CASE("the search finds what an exhaustive search finds, and states why the other layouts are slower") {
  auto job = job_on_p4d(2, published_gpt(16, 4096, 16, false, 51200, 1024), 1024, 64);
  SearchSpace space{
      .microbatch_sizes = {1, 2, 4}, .chunks = {2}, .sharded = {Level::none, Level::optimizer}, .offload = {{}}};
  const auto found = search(job, space);
  REQUIRE(found.best.size() == 10);
  CHECK(found.reasons.size() == 10);
  CHECK(found.reasons.front().empty());
  for (size_t i = 1; i < 10; ++i) {
    CHECK(found.best[i - 1].step.seconds <= found.best[i].step.seconds);
    CHECK_FALSE(found.reasons[i].empty());
  }
  for (const auto& loser : found.losers) {
    CHECK_FALSE(loser.reason.empty());
    const auto planned = plan_layout(job, loser.layout);
    CAPTURE(to_string(loser.layout), loser.reason);
    CHECK((!planned.fit.fits || planned.step.seconds >= found.best.back().step.seconds * (1 - 1e-9)));
  }
  job.workload.global_batch = 7;
  CHECK_THROWS_AS(search(job, {.tensor = {1}, .pipeline = {1}}), ConfigError);
}

TEST_CASE("ranked layouts have the placement with which their step is fastest") {
  auto job = job_on_p4d(2, published_gpt(16, 4096, 16, false, 51200, 1024), 1024, 64);
  SearchSpace space{.tensor = {4},
                    .pipeline = {2},
                    .microbatch_sizes = {2},
                    .schedules = {"interleaved"},
                    .sharded = {Level::none},
                    .placements = {"TPD"}};  // ranks of a tensor-parallel group are on different nodes
  const auto fixed = search(job, space);
  space.other_placements = {"DPT", "PDT", "DTP"};
  const auto chosen = search(job, space);
  REQUIRE(chosen.best.size() == fixed.best.size());
  CHECK(chosen.best.front().step.seconds < 0.8 * fixed.best.front().step.seconds);
  for (const auto& best : chosen.best) {
    CAPTURE(to_string(best.layout));
    for (const char* placement : {"TPD", "DPT", "PDT", "DTP"}) {
      Layout layout = best.layout;
      layout.placement = placement;
      CHECK(best.step.seconds <= plan_layout(job, layout).step.seconds * (1 + 1e-9));
    }
  }
}

TEST_CASE("by cost and by memory, the search finds what an exhaustive search finds, too") {
  auto job = job_on_p4d(2, published_gpt(16, 1024, 8, false, 51200, 1024), 1024, 64);
  job.workload.software.own_ops = true;
  SearchSpace space{.worlds = {8, 16}, .microbatch_sizes = {1, 4}, .chunks = {2}};
  const auto nodes = [&](const Layout& layout) { return job.machines.cluster.nodes_of(layout.world()); };
  const auto amount = [&](const PlannedLayout& planned, Ranking ranking) {
    return ranking == Ranking::memory ? planned.fit.bytes : planned.step.seconds * nodes(planned.layout);
  };
  for (const Ranking ranking : {Ranking::cost, Ranking::memory}) {
    space.keep = 10;
    const auto found = search(job.workload, job.machines, space, ranking);
    REQUIRE(found.best.size() == 10);
    space.keep = 1 << 20;
    const auto all = search(job.workload, job.machines, space, ranking);
    for (size_t place = 0; place < 10; ++place) {
      CAPTURE(place, to_string(found.best[place].layout), to_string(all.best[place].layout), found.reasons[place]);
      CHECK(amount(found.best[place], ranking) == Approx(amount(all.best[place], ranking)).epsilon(1e-9));
      if (place == 0) continue;
      const double more = amount(found.best[place], ranking) / amount(found.best.front(), ranking) - 1;
      CHECK(std::stod(found.reasons[place].substr(found.reasons[place].find_first_of("-0123456789"))) ==
            Approx(100 * more).margin(0.06));
    }
    for (const auto& loser : found.losers)
      if (loser.fits) CHECK_THAT(loser.reason, Catch::Contains(ranking == Ranking::cost ? " node seconds" : "needs "));
  }
}

TEST_CASE("the divisors of a batch of any size are found quickly") {
  auto job = job_on_p4d(1, published_gpt(16, 1024, 2, false, 51200, 64), 64, 2147483647);  // a prime number
  CHECK_THROWS_WITH(search(job, {.pipeline = {1}, .microbatches = {2}}), Catch::Contains("microbatches must divide"));
}

TEST_CASE("if nothing fits, the closest layout is the one that needs the least") {
  auto job = job_on_p4d(1, published_gpt(16, 1024, 8, false, 51200, 1024), 1024, 64);
  const SearchSpace space{.base = {.on_accelerators = true}};
  for (const double bytes : {1e3, 1.3e9}) {
    job.machines.cluster.memory_bytes = bytes;
    const auto found = search(job, space);
    REQUIRE(found.best.empty());
    const auto& closest = found.closest();
    CAPTURE(bytes, to_string(closest.layout), closest.reason);
    CHECK(closest.bytes > bytes);
    for (const auto& loser : found.losers) {
      CHECK(loser.bytes >= closest.bytes);
      CHECK_FALSE(loser.fits);
    }
    CHECK(plan_layout(job, closest.layout).fit.bytes >= closest.bytes);
  }
}

TEST_CASE("the search offers only microbatches that a config may have") {
  auto job = job_on_p4d(1, published_gpt(16, 1024, 8, false, 51200, 1024), 1024, 2 * kMostMicrobatches);
  SearchSpace space{
      .tensor = {8}, .pipeline = {1}, .microbatch_sizes = {1, 2}, .sharded = {Level::none}, .offload = {{}}};
  const auto found = search(job, space);
  REQUIRE_FALSE(found.best.empty());
  for (const auto& best : found.best) CHECK(best.layout.microbatches == kMostMicrobatches);
  for (const auto& loser : found.losers) CHECK(loser.layout.microbatches == kMostMicrobatches);
  space.microbatch_sizes = {1};
  CHECK_THROWS_WITH(search(job, space), Catch::Contains("at most 65536 microbatches"));
  job.workload.global_batch = 16;
  job.workload.sequence_length = 1 << 24;
  space.microbatch_sizes = {16};
  CHECK_THROWS_WITH(search(job, space), Catch::Contains("at most 134217728 tokens"));
}

TEST_CASE("the search chooses what is sharded, and over how many replicas") {
  auto job = job_on_p4d(2, published_gpt(16, 2048, 24), 2048, 64);
  SearchSpace space{.tensor = {1},
                    .pipeline = {1},
                    .microbatch_sizes = {1},
                    .recompute = {recompute_blocks(job.workload.spec, What::layers)},
                    .sharding_degrees = {},
                    .offload = {{}}};
  const auto shards_at = [&](double gib) {
    job.machines.cluster.memory_bytes = gib * 1073741824.0;
    const auto found = search(job, space);
    CHECK(found.best.size() + found.losers.size() == 3 + 4);  // by 2, 4, 8 and 16 replicas
    REQUIRE_FALSE(found.best.empty());
    const Layout& best = found.best.front().layout;
    CAPTURE(gib, to_string(best));
    for (int sharded = 0; sharded <= 3; ++sharded)
      for (const int degree : {2, 4, 8, 16}) {
        Layout other = best;
        other.sharding = zero(sharded, sharded == 3 ? degree : other.replicas);
        const auto planned = plan_layout(job, other);
        CAPTURE(to_string(other));
        CHECK((!planned.fit.fits || planned.step.seconds >= found.best.front().step.seconds * (1 - 1e-9)));
      }
    for (size_t i = 1; i < found.reasons.size(); ++i) CHECK_FALSE(found.reasons[i].empty());
    return best.sharded() == Level::weights ? best.sharding.degree : 1;
  };
  CHECK(shards_at(40) <= shards_at(16));
  const auto needed = [&](int degree) {
    const Layout layout{
        .replicas = 16, .microbatches = 4, .recompute = space.recompute.front(), .sharding = zero(3, degree)};
    return plan_layout(job, layout).fit.bytes / 1073741824.0;
  };
  REQUIRE(needed(4) > needed(8));
  CHECK(shards_at(needed(8)) == 8);  // 4 would not fit, and 16 leave the node

  space.sharded = {Level::weights};
  space.sharding_degrees = {3};
  CHECK_THROWS_WITH(search(job, space), Catch::Contains("sharding degree"));
}

// If a bound were too high, a search for few layouts would drop one that a search for all of them finds.
TEST_CASE("a search by memory finds the same layouts in the same order, however many it keeps") {
  auto job = job_on_p4d(2, published_gpt(16, 1024, 8, false, 512, 1024), 1024, 64);
  job.workload.software.own_ops = true;
  SearchSpace space{
      .microbatch_sizes = {1, 4}, .schedules = {"interleaved", "interleaved_1f1b", "zb_h1"}, .chunks = {2, 4}};
  space.sharding_degrees = {};
  const auto& layers = job.workload.spec.layers;
  std::vector<Recompute> groups(layers.size()), mixed(layers.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    if (!layers[i].is_block) continue;
    groups[i] = {What::layers, 3};
    if (i % 3 == 0) mixed[i] = {What::layers, Recompute::kAll};
  }
  SECTION("blocks that are alike") {
    space.offload = {{}, {.enabled = true}, {.enabled = true, .everything = true}};
  }
  SECTION("groups of blocks, and some of the blocks") {
    space.recompute = {groups, mixed};
  }
  SECTION("little may be gathered or reduced at a time") {
    space.base.sharding.most_gathered = 15'000'000;
    space.base.sharding.most_reduced = 2'000'000;
    space.base.sharding.whole_below = 100'000;
  }
  space.keep = 1 << 20;
  const auto all = search(job.workload, job.machines, space, Ranking::memory);
  REQUIRE(all.best.size() > 500);
  for (const int keep : {1, 3, 10, 40, 200}) {
    space.keep = keep;
    const auto found = search(job.workload, job.machines, space, Ranking::memory);
    REQUIRE(std::ssize(found.best) == keep);
    for (int place = 0; place < keep; ++place) {
      CAPTURE(keep, place, to_string(all.best[place].layout), to_string(found.best[place].layout));
      REQUIRE(found.best[place].layout == all.best[place].layout);
      REQUIRE(found.best[place].fit.bytes == all.best[place].fit.bytes);
    }
    CHECK(found.best.size() + found.losers.size() == all.best.size() + all.losers.size());
  }
}

// Searches a space with one layout on devices that have exactly the memory it needs.
TEST_CASE("no layout that fits exactly is dropped by a bound") {
  auto job = job_on_p4d(1, published_gpt(16, 1024, 8, false, 51200, 1024), 1024, 32);
  job.workload.software.own_ops = true;
  SearchSpace space{.microbatch_sizes = {1, 4}, .schedules = {"simple", "interleaved", "interleaved_1f1b", "zbv"}};
  space.chunks = {2};
  space.base.on_accelerators = GENERATE(false, true);
  space.base.sharding.whole_below = 1 << 20;
  std::vector<Layout> layouts;
  const auto add_all = [&] {
    const auto all = search(job, space);
    for (const auto& planned : all.best) layouts.push_back(planned.layout);
    for (const auto& loser : all.losers) layouts.push_back(loser.layout);
  };
  add_all();
  // Recomputed block by block, as with lists in activation_checkpointing; everything outside blocks is small.
  job.workload.spec = published_gpt(16, 1024, 8, false, 512, 1024);
  space.recompute = {recompute_blocks(job.workload.spec, What::layers),
                     recompute_blocks(job.workload.spec, What::layers)};
  for (const size_t first : {1, 2, 8}) space.recompute[0][first] = {};
  for (const size_t layer : {2, 3, 4, 5, 6, 7, 8}) space.recompute[1][layer] = {};
  add_all();
  // Recomputed in groups, of which only the first input is kept; in some layouts, everything is offloaded.
  for (size_t layer = 1; layer <= 8; ++layer) {
    space.recompute[0][layer] = {What::layers, 3};
    space.recompute[1][layer] = {What::layers, Recompute::kAll};
  }
  space.offload = {{}, {.enabled = true, .everything = true}};
  add_all();
  CHECK(layouts.size() > 1500);
  for (const auto& layout : layouts) {
    const double bytes = plan_layout(job, layout).fit.bytes;
    auto just_enough = job;
    just_enough.machines.cluster.memory_bytes = bytes;
    const auto found = search(just_enough, only(layout));
    CAPTURE(to_string(layout), found.losers.empty() ? "" : found.losers.front().reason);
    REQUIRE(found.best.size() == 1);
    CHECK(found.best.front().fit.bytes == bytes);
  }
}

// With less memory than the unconstrained cut needs, most blocks are in the chunks that keep the fewest microbatches.
TEST_CASE("no layout that fits by a cut for its memory is dropped by a bound") {
  auto job = job_on_p4d(1, published_gpt(8, 256, 24, false, 512, 256), 256, 0);
  job.workload.software.own_ops = true;
  job.machines.cluster.multiprocessors = 0;  // no runtime of a GPU
  const auto selective = recompute_blocks(job.workload.spec, What::attention);
  for (const auto& [pipeline, chunks, microbatches, recompute] :
       std::vector<std::tuple<int, int, int, std::vector<Recompute>>>{
           {2, 2, 16, {}}, {2, 3, 16, {}}, {2, 2, 8, selective}, {4, 2, 8, {}}}) {
    const Layout layout{.pipeline = pipeline,
                        .microbatches = microbatches,
                        .schedule = "interleaved_1f1b",
                        .chunks_per_stage = chunks,
                        .recompute = recompute};
    job.workload.global_batch = microbatches;
    job.machines.cluster.memory_bytes = 1e15;
    const auto free = plan_layout(job, layout);
    double too_little = 0, enough = free.fit.bytes;
    for (int halving = 0; halving < 10; ++halving) {
      job.machines.cluster.memory_bytes = (too_little + enough) / 2;
      (plan_layout(job, layout).fit.fits ? enough : too_little) = job.machines.cluster.memory_bytes;
    }
    job.machines.cluster.memory_bytes = enough;
    CAPTURE(to_string(layout), enough, free.fit.bytes);
    CHECK(plan_layout(job, layout).chunk_of_layer != free.chunk_of_layer);
    CHECK(search(job, only(layout)).best.size() == 1);
  }
}

// The tied embedding and head are stored once if both ends of the model are on one stage.
TEST_CASE("a partition that fits the memory exactly is not avoided") {
  auto job = job_on_p4d(1, published_gpt(16, 1024, 8, false, 51200, 1024), 1024, 32);
  job.workload.software.own_ops = true;
  const bool on_accelerators = GENERATE(false, true);
  for (const char* schedule : {"zbv", "dualpipev", "interleaved"})
    for (const int pipeline : {2, 4}) {
      job.machines.cluster.memory_bytes = 1e15;
      const Layout layout{
          .pipeline = pipeline, .microbatches = 32, .schedule = schedule, .on_accelerators = on_accelerators};
      const auto free = plan_layout(job, layout);
      job.machines.cluster.memory_bytes = free.fit.bytes;
      CAPTURE(schedule, pipeline, on_accelerators);
      CHECK(plan_layout(job, layout).chunk_of_layer == free.chunk_of_layer);
    }
}

TEST_CASE("parameters that sharding leaves whole save no memory and cost no gathering") {
  auto job = job_on_p4d(1, published_gpt(16, 1024, 4), 1024, 8);
  const Layout whole{.replicas = 8};
  Layout sharded{.replicas = 8, .sharding = zero(3, 8)};
  CHECK(plan_layout(job, sharded).fit.bytes < plan_layout(job, whole).fit.bytes);
  const auto block = [&] { return shared_parameters(sharded, job.workload.spec.layers[1], Counted::all); };
  CHECK(block() == local_parameters(job.workload.spec.layers[1], 1, Counted::all));
  sharded.sharding.whole_below = 1024 * 1024 + 1;  // all but the three large products
  CHECK(block() == (3 + 4 + 4) * 1024 * 1024);
  sharded.sharding.whole_below = int64_t{1} << 40;
  CHECK(block() == 0);
  CHECK(plan_layout(job, sharded).fit.bytes == plan_layout(job, whole).fit.bytes);
  CHECK(plan_layout(job, sharded).step.seconds == plan_layout(job, whole).step.seconds);
  CHECK(shared_parameters({.replicas = 8, .sharding = zero(2, 8)}, job.workload.spec.layers[1], Counted::all) ==
        local_parameters(job.workload.spec.layers[1], 1, Counted::all));
}

TEST_CASE("the search finds layouts for 175B on 960 A100 40GB") {
  std::printf("175B on 120 x p4d.24xlarge, global batch 1920; published: 32 samples/s, length not stated\n");
  for (const int length : {512, 1024, 2048}) {
    const auto job = job_on_p4d(120, published_gpt(96, 12288, 96, false, 51200, length), length, 1920);
    const std::clock_t start = std::clock();
    const auto found = search(job, {});
    const double cpu_seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    REQUIRE_FALSE(found.best.empty());
    const auto& best = found.best.front();
    std::printf(
        "  length %4d: %6.1f samples/s, utilization %.1f %%, bubble %.1f %%, %.1f GiB; %s; %zu losers, %.2f s\n",
        length, best.step.samples_per_second, 100 * best.step.utilization, 100 * best.step.bubble_fraction,
        best.fit.bytes / 1073741824.0, to_string(best.layout).c_str(), found.losers.size(), found.seconds);
    CHECK(best.layout.tensor > 1);
    CHECK(best.fit.fits);
    CHECK(cpu_seconds < 20);  // generous, for any machine; the goal on an idle core is 4.5
  }
  const auto job = job_on_p4d(120, published_gpt(96, 12288, 96, false, 51200, 2048), 2048, 1920);
  const std::clock_t start = std::clock();
  const auto found = search(job.workload, job.machines, {}, Ranking::memory);
  const double cpu_seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  REQUIRE(found.best.size() == 10);
  std::printf("  by memory: %.1f GiB; %s; %.2f s\n", found.best.front().fit.bytes / 1073741824.0,
              to_string(found.best.front().layout).c_str(), cpu_seconds);
  CHECK(cpu_seconds < 20);
}

}  // namespace shardline::search_test
