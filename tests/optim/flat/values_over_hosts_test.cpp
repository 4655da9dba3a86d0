// Sharded values have the same bits whether their ranks are on one host or on several.
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>

#include <map>
#include <mutex>

#include "core/comm/threads_communicator.h"
#include "core/error.h"
#include "optim/flat/stage_parameters.h"

#include "tests/catch.h"

namespace shardline::values_over_hosts_test {
namespace {

using Level = Sharding::Level;
using Values = std::map<std::string, at::Tensor>;

ModelSpec two_layers() {
  ModelSpec spec{.family = "toy"};
  for (const char* name : {"a", "b"}) {
    LayerSpec layer{.name = name};
    layer.params.push_back({.name = "weight", .shape = {37, 5}, .split_dim = 0, .deferred = true});
    layer.params.push_back({.name = "norm", .shape = {11}, .decays = false, .partial_over_t = true});
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

// What each rank sees in a pass over both layers after it has updated its own shards; by "rank name".
Values values_after_update(const Mesh& mesh, const Sharding& sharding, const std::vector<int>& host_of) {
  const ModelSpec spec = two_layers();
  const std::vector<int> stage_of_layer = {0, 0};
  Values seen;
  std::mutex mutex;
  run_ranks(mesh.size(), [&](CommunicatorPtr world) {
    RankGroups groups = make_rank_groups(mesh, world, world);
    groups.host_of = host_of;
    StageParameters parameters({.spec = spec,
                                .stage_of_layer = stage_of_layer,
                                .groups = groups,
                                .sharding = sharding,
                                .values = at::TensorOptions(at::kFloat)});
    parameters.fill_values([](Parameter& p) { p.value.copy_(at::arange(p.value.numel()).view(p.value.sizes())); });
    for (const auto& range : parameters.trained_ranges()) range.values.mul_(1.5).add_(0.25);
    parameters.publish_values();
    parameters.begin_run({0, 1, 1, 0});
    for (const int layer : {0, 1, 1, 0}) {
      parameters.acquire(layer);
      {
        std::scoped_lock lock(mutex);
        for (const Parameter* p : parameters.layer_params(layer))
          seen[cat(world->rank(), " ", p->name)] = p->value.clone();
      }
      parameters.release(layer);
    }
  });
  return seen;
}

TEST_CASE("values gathered over several hosts have the bits of one all-gather") {
  struct Case {
    Mesh mesh;
    int degree;
    std::vector<int> host_of;
  };
  const std::vector<Case> cases = {{Mesh("cluster", 4, 1, 1), 4, {0, 0, 1, 1}},
                                   {Mesh("cluster", 4, 1, 1), 4, {0, 1, 0, 1}},
                                   {Mesh("cluster", 4, 1, 1), 4, {0, 1, 1, 1}},
                                   {Mesh("cluster", 8, 1, 1), 4, {0, 0, 1, 1, 2, 2, 3, 3}},
                                   {Mesh("cluster", 4, 1, 2), 4, {0, 0, 0, 0, 1, 1, 1, 1}},
                                   {Mesh("spread", 4, 1, 2), 4, {0, 0, 1, 1, 2, 2, 3, 3}}};
  for (const auto& [mesh, degree, host_of] : cases)
    for (const Level level : {Level::optimizer, Level::weights}) {
      if (level == Level::optimizer && degree != mesh.d()) continue;
      Sharding sharding{.level = level, .degree = degree};
      const Values two_steps = values_after_update(mesh, sharding, host_of);
      sharding.hierarchical_gather = false;
      const Values one_step = values_after_update(mesh, sharding, host_of);
      CAPTURE(mesh.placement(), mesh.d(), mesh.t(), host_of, static_cast<int>(level));
      REQUIRE(two_steps.size() == one_step.size());
      REQUIRE(two_steps.size() == static_cast<size_t>(mesh.size()) * 4);
      for (const auto& [name, value] : one_step) {
        CAPTURE(name);
        CHECK(at::equal(two_steps.at(name), value));
        CHECK(value.flatten()[0].item<float>() == 0.25f);
      }
    }
}

}  // namespace
}  // namespace shardline::values_over_hosts_test
