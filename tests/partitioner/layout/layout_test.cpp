#include "partitioner/layout/layout.h"

#include <nlohmann/json.hpp>

#include "partitioner/search/search.h"
#include "tests/partitioner/cost/published.h"
#include "tests/partitioner/planning.h"

#include "tests/catch.h"

namespace shardline::layout_test {
namespace {

Layout read_back(const Layout& layout) {
  return nlohmann::json::parse(nlohmann::json(layout).dump()).get<Layout>();
}

}  // namespace

TEST_CASE("a layout is read back from its JSON as an equal one") {
  const Layout all_set{.tensor = 2,
                       .pipeline = 3,
                       .replicas = 4,
                       .placement = "TDP",
                       .microbatch_size = 5,
                       .microbatches = 12,
                       .accumulation_steps = 6,
                       .loader_batches = 7,
                       .eval_batch = int64_t{1} << 40,
                       .schedule = "folder/own.csv",
                       .chunks_per_stage = 8,
                       .active_microbatches = 9,
                       .recompute = {{},
                                     {Recompute::What::attention},
                                     {Recompute::What::layers, 3},
                                     {Recompute::What::layers, Recompute::kAll}},
                       .offload = {.enabled = true, .horizon = 10, .everything = true},
                       .sequence_parallel = true,
                       .sharding = {.level = Sharding::Level::weights,
                                    .degree = 2,
                                    .whole_below = int64_t{1} << 50,
                                    .most_gathered = 11,
                                    .most_reduced = 12,
                                    .hierarchical_gather = false},
                       .states_on_host = true,
                       .on_accelerators = true};
  const nlohmann::json fields = all_set, defaults = Layout{};
  for (const auto& [name, value] : fields.items()) {
    CAPTURE(name);
    CHECK(value != defaults.at(name));
    nlohmann::json other = fields;
    other[name] = defaults.at(name);
    CHECK_FALSE(other.get<Layout>() == all_set);
  }
  CHECK(read_back(all_set) == all_set);
  CHECK(read_back({}) == Layout{});

  auto job = Planning{{.spec = published_gpt(8, 512, 8), .sequence_length = 512, .global_batch = 64},
                      {read_cluster(SHARDLINE_CLUSTERS "/p4d.24xlarge.json")}};
  const auto found = search(job.workload, job.machines, {}, Ranking::time);
  REQUIRE(found.best.size() + found.losers.size() > 1000);
  for (const auto& planned : found.best) CHECK(read_back(planned.layout) == planned.layout);
  for (const auto& loser : found.losers) REQUIRE(read_back(loser.layout) == loser.layout);
}

}  // namespace shardline::layout_test
