#include "optim/flat/stage_parameters.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <mutex>

#include "core/comm/local_communicator.h"
#include "core/comm/threads_communicator.h"
#include "core/error.h"
#include "core/memory/storage.h"
#include "optim/flat/whole_gradients.h"
#include "optim/update/gradient_norm.h"

#include "tests/catch.h"

namespace shardline::stage_parameters_test {
namespace {

using Level = Sharding::Level;

// Layers a, b, c, d: each has a split weight, a norm and a plain bias; "a.words" is shared by the layers that `tied`
// names.
ModelSpec model(const std::vector<int>& tied, bool sequence_parallel) {
  ModelSpec spec{.family = "toy"};
  for (int layer = 0; layer < 4; ++layer) {
    LayerSpec l{.name = std::string(1, static_cast<char>('a' + layer))};
    if (layer == 0) l.params.push_back({.name = "words", .shape = {7, 2}, .split_dim = 0});
    l.params.push_back({.name = "weight", .shape = {5, 3}, .split_dim = 0, .deferred = true});
    l.params.push_back({.name = "norm", .shape = {3}, .decays = false, .partial_over_t = sequence_parallel});
    l.params.push_back({.name = "bias", .shape = {2}, .decays = false});
    if (std::count(tied.begin(), tied.end(), layer))
      l.params.push_back({.name = "use", .shape = {7, 2}, .split_dim = 0, .tied_to = "a.words"});
    spec.layers.push_back(std::move(l));
  }
  return spec;
}

// What rank (d, t) adds to each element of a parameter of a layer.
double contribution(int layer, size_t place, const Coordinates& at) {
  return 1000.0 * (layer + 1) + 100.0 * static_cast<double>(place) + 10 * at.d + at.t;
}

// The gradient of one use after the reduction, on tensor rank t.
double reduced(int layer, size_t place, Sharing sharing, const Mesh& mesh, int t) {
  double sum = 0;
  for (int d = 0; d < mesh.d(); ++d)
    for (int other = 0; other < mesh.t(); ++other)
      if (sharing == Sharing::partial || other == t) sum += contribution(layer, place, {d, 0, other});
  return sum;
}

bool same_name(const LayerSpec& layer, const ParamSpec& param, const std::string& name) {
  return layer.full_name(param) == name || param.tied_to == name;
}

// Adds all uses of the parameter `name`.
double expected(const ModelSpec& spec, const std::string& name, const Mesh& mesh, int t) {
  double sum = 0;
  for (size_t layer = 0; layer < spec.layers.size(); ++layer)
    for (size_t i = 0; i < spec.layers[layer].params.size(); ++i) {
      const auto& param = spec.layers[layer].params[i];
      if (!same_name(spec.layers[layer], param, name)) continue;
      sum += reduced(static_cast<int>(layer), i, sharing_of(param, mesh.t()), mesh, t);
    }
  return sum;
}

// Adds the gradients in two microbatches: the second one adds what remains of each contribution.
void fill_gradients(StageParameters& parameters, const ModelSpec& spec, const std::vector<int>& stage_of_layer) {
  const auto& at = parameters.groups().coordinates;
  parameters.zero_gradients();
  for (const bool last : {false, true}) {
    for (size_t l = spec.layers.size(); l-- > 0;) {
      if (stage_of_layer[l] != at.p) continue;
      const int layer = l;
      const auto params = parameters.layer_params(layer);
      for (const bool deferred : {false, true}) {
        parameters.open_gradients(layer, deferred);
        for (size_t i = 0; i < params.size(); ++i)
          if (params[i]->spec->deferred == deferred && params[i]->grad.numel() > 0)
            params[i]->grad.add_(last ? contribution(layer, i, at) - 1 : 1.0);
        parameters.close_gradients(layer, deferred, last);
      }
    }
    parameters.settle_gradients();
  }
  parameters.finish_gradients();
}

// The norm over whole parameters, each counted once.
double expected_norm(const ModelSpec& spec, const Mesh& mesh) {
  double squares = 0;
  for (const auto& layer : spec.layers)
    for (const auto& param : layer.params) {
      if (!param.tied_to.empty()) continue;
      const bool split = sharing_of(param, mesh.t()) == Sharing::split;
      for (int t = 0; t < (split ? mesh.t() : 1); ++t) {
        double elements = 1;
        for (auto size : param.local_shape(t, mesh.t())) elements *= static_cast<double>(size);
        squares += elements * std::pow(expected(spec, layer.full_name(param), mesh, t), 2);
      }
    }
  return std::sqrt(squares);
}

RankGroups groups_of(const Mesh& mesh, const CommunicatorPtr& world) {
  return make_rank_groups(mesh, world, world);
}

// Without sequence parallelism, replicated gradients are the same on all T ranks; here each rank's differs, and tensor
// rank 0's is the one that counts.
void check_reduction(const std::vector<int>& tied, const std::vector<int>& stage_of_layer, const Mesh& mesh,
                     bool sequence_parallel, const Sharding& sharding) {
  const ModelSpec spec = model(tied, sequence_parallel);
  const double norm = expected_norm(spec, mesh);
  std::string mistakes;
  std::mutex mutex;
  run_ranks(mesh.size(), [&](CommunicatorPtr world) {
    StageParameters parameters({.spec = spec,
                                .stage_of_layer = stage_of_layer,
                                .groups = groups_of(mesh, world),
                                .sharding = sharding,
                                .values = at::TensorOptions(at::kDouble)});
    std::string mine;
    for (int step = 0; step < 2; ++step) {  // the second gradient must replace the first
      fill_gradients(parameters, spec, stage_of_layer);
      for (const auto& [name, gradient] : whole_gradients(parameters, spec)) {
        const double value = expected(spec, name, mesh, parameters.groups().coordinates.t);
        if (!at::equal(gradient, at::full_like(gradient, value)))
          mine += cat("rank ", world->rank(), ": ", name, " is not ", value, "\n");
      }
      const double got = GradientNorm(parameters).value();
      if (!(std::abs(got - norm) <= 1e-12 * norm)) mine += cat("norm ", got, " is not ", norm, "\n");
    }
    std::scoped_lock lock(mutex);
    mistakes += mine;
  });
  CAPTURE(tied, stage_of_layer, mesh.d(), mesh.p(), mesh.t(), sequence_parallel, static_cast<int>(sharding.level),
          sharding.degree);
  CHECK(mistakes == "");
}

std::vector<Sharding> shardings(int replicas) {
  std::vector<Sharding> all = {{}};
  for (const auto level : {Level::optimizer, Level::gradients, Level::weights})
    all.push_back({.level = level, .degree = replicas});
  all.push_back(
      {.level = Level::weights, .degree = replicas, .whole_below = 10, .most_gathered = 1, .most_reduced = 1});
  if (replicas % 2 == 0) all.push_back({.level = Level::weights, .degree = 2, .whole_below = 3});
  return all;
}

}  // namespace

TEST_CASE("gradients are reduced over the ranks that share them, tied ones once over all uses, under every sharding") {
  for (bool sequence_parallel : {false, true})
    for (const auto& tied : {std::vector<int>{}, {3}, {1, 3}, {0}, {1, 2, 3}}) {
      const auto check = [&](const std::vector<int>& stage_of_layer, const Mesh& mesh) {
        for (const auto& sharding : shardings(mesh.d()))
          check_reduction(tied, stage_of_layer, mesh, sequence_parallel, sharding);
      };
      check({0, 0, 0, 0}, Mesh("cluster", 1, 1, 1));
      check({0, 0, 0, 0}, Mesh("cluster", 2, 1, 3));
      check({0, 0, 0, 0}, Mesh("TPD", 4, 1, 1));
      check({0, 0, 1, 1}, Mesh("cluster", 1, 2, 2));
      check({0, 0, 1, 1}, Mesh("spread", 4, 2, 2));
      check({0, 1, 2, 2}, Mesh("PDT", 2, 3, 1));
    }
}

TEST_CASE("values are whole when they are used, and shards otherwise") {
  const ModelSpec spec = model({1, 3}, true);
  const Mesh mesh("cluster", 4, 1, 2);
  const std::vector<int> stage_of_layer = {0, 0, 0, 0};
  for (const auto& sharding : shardings(4)) {
    std::vector<std::string> mistakes;
    std::mutex mutex;
    run_ranks(mesh.size(), [&](CommunicatorPtr world) {
      StageParameters parameters({.spec = spec,
                                  .stage_of_layer = stage_of_layer,
                                  .groups = groups_of(mesh, world),
                                  .sharding = sharding,
                                  .values = at::TensorOptions(at::kFloat)});
      const auto number = [&](const Parameter& p) { return static_cast<double>(p.name.size() + p.spec->shape.size()); };
      parameters.fill_values([&](Parameter& p) { p.value.fill_(number(p)); });
      const auto check = [&](const char* when, double added) {
        const std::vector<int> order = {0, 1, 2, 3, 3, 2, 1, 1, 0};
        parameters.begin_run(order);
        for (const int layer : order) {
          parameters.acquire(layer);
          for (const auto* p : parameters.layer_params(layer))
            if (!at::equal(p->value, at::full_like(p->value, number(*p) + added))) {
              const std::scoped_lock lock(mutex);
              mistakes.push_back(cat(when, " ", p->name, " on rank ", world->rank()));
            }
          parameters.release(layer);
        }
      };
      check("filled", 0);
      for (const auto& range : parameters.trained_ranges()) range.values.add_(1);
      parameters.publish_values();
      check("updated", 1);
      int shards = 0;  // parameters whose whole values have no memory
      for (const auto* p : parameters.stored()) shards += !has_storage(p->value);
      const std::scoped_lock lock(mutex);
      if ((shards > 0) != (sharding.level == Level::weights)) mistakes.push_back("whole values stayed");
    });
    CAPTURE(static_cast<int>(sharding.level), sharding.degree, sharding.whole_below);
    CHECK(mistakes == std::vector<std::string>{});
  }
}

TEST_CASE("frozen half-precision values are kept as they were loaded") {
  ModelSpec spec = model({1, 3}, true);
  for (auto& param : spec.layers[1].params) param.trainable = false;
  const Mesh mesh("cluster", 2, 1, 2);
  const float exact = 1.0f + 0x1p-14f;  // not a number of bf16
  for (const auto& sharding : shardings(2)) {
    std::atomic<int> seen = 0, wrong = 0;
    run_ranks(mesh.size(), [&](CommunicatorPtr world) {
      StageParameters parameters({.spec = spec,
                                  .stage_of_layer = {0, 0, 0, 0},
                                  .groups = groups_of(mesh, world),
                                  .sharding = sharding,
                                  .values = at::TensorOptions(at::kBFloat16)});
      parameters.fill_values([&](Parameter& p) { p.value.fill_(exact); });
      parameters.visit_values([&](const Parameter& p) {
        seen += !p.spec->trainable;
        wrong += !at::equal(p.value, at::full(p.value.sizes(), exact, at::kFloat));
      });
    });
    CAPTURE(static_cast<int>(sharding.level), sharding.degree, sharding.whole_below);
    CHECK(seen > 0);
    CHECK(wrong == 0);
  }
}

TEST_CASE("half-precision values are their fp32 masters, rounded, under every sharding") {
  const ModelSpec spec = model({1, 3}, true);
  const Mesh mesh("cluster", 4, 1, 2);
  for (const auto type : {at::kBFloat16, at::kHalf})
    for (const auto& sharding : shardings(4)) {
      std::vector<std::string> mistakes;
      std::mutex mutex;
      run_ranks(mesh.size(), [&](CommunicatorPtr world) {
        StageParameters parameters({.spec = spec,
                                    .stage_of_layer = {0, 0, 0, 0},
                                    .groups = groups_of(mesh, world),
                                    .sharding = sharding,
                                    .values = at::TensorOptions(type)});
        const float start = 1.0f + 0x1p-14f;  // a number that neither type has
        const auto complain = [&](const std::string& what) {
          const std::scoped_lock lock(mutex);
          mistakes.push_back(cat(what, " on rank ", world->rank()));
        };
        const auto check = [&](float exact) {
          const at::Tensor rounded = at::full({}, exact, at::kFloat).to(type);
          const std::vector<int> order = {0, 1, 2, 3};
          parameters.begin_run(order);
          for (const int layer : order) {
            parameters.acquire(layer);
            for (const auto* p : parameters.layer_params(layer)) {
              if (p->value.scalar_type() != type || p->grad.scalar_type() != at::kFloat)
                complain("types of " + p->name);
              if (!at::equal(p->value, rounded.expand_as(p->value))) complain(p->name);
            }
            parameters.release(layer);
          }
          parameters.visit_values([&](const Parameter& p) {
            if (!at::equal(p.value, at::full(p.value.sizes(), exact, at::kFloat))) complain("master of " + p.name);
          });
        };
        parameters.fill_values([&](Parameter& p) { p.value.fill_(start); });
        check(start);
        float now = start;
        for (int step = 0; step < 200; ++step, now += 0x1p-14f)  // each alone would be rounded away
          for (const auto& range : parameters.trained_ranges()) range.values.add_(0x1p-14f);
        parameters.publish_values();
        check(now);
        if (parameters.trained_type() != at::kFloat) complain("type");
      });
      CAPTURE(type, static_cast<int>(sharding.level), sharding.degree, sharding.whole_below);
      CHECK(mistakes == std::vector<std::string>{});
    }
}

TEST_CASE("a parameter that several layers use has one value, one update and one place in a file") {
  const ModelSpec spec = model({1, 3}, false);
  const Mesh mesh("cluster", 2, 2, 2);
  const std::vector<int> stage_of_layer = {0, 0, 1, 1};
  std::map<std::string, int> writers;
  std::vector<std::string> mistakes;
  std::mutex mutex;
  run_ranks(mesh.size(), [&](CommunicatorPtr world) {
    StageParameters parameters({.spec = spec,
                                .stage_of_layer = stage_of_layer,
                                .groups = groups_of(mesh, world),
                                .sharding = {},
                                .values = at::TensorOptions(at::kFloat)});
    const int stage = parameters.groups().coordinates.p;
    std::scoped_lock lock(mutex);
    int64_t stored = 0, trained = 0;
    for (const auto* p : parameters.stored()) {
      stored += p->value.numel();
      if (parameters.writes(*p)) ++writers[p->name];
    }
    for (const auto& range : parameters.trained_ranges()) trained += range.values.numel();
    if (trained < stored || trained > stored + 32 * 12) mistakes.push_back("ranges do not cover what is stored");
    if (stage == 0) {
      auto first = parameters.layer_params(0), second = parameters.layer_params(1);
      if (first.front()->value.data_ptr() != second.back()->value.data_ptr()) mistakes.push_back("two values");
      if (first.front()->grad.data_ptr() == second.back()->grad.data_ptr()) mistakes.push_back("one gradient");
    }
    try {
      parameters.layer_params(stage == 0 ? 3 : 0);
      mistakes.push_back("a layer of another stage");
    } catch (const InvariantError&) {
    }
  });
  CHECK(mistakes == std::vector<std::string>{});
  CHECK(writers.size() == 13);
  for (const auto& [name, count] : writers) {
    INFO(name);
    const bool split = name.ends_with("weight") || name.ends_with("words");
    CHECK(count == (split ? 2 : 1));  // each tensor rank has its slice
  }
}

TEST_CASE("a model that does not train has no gradients") {
  const ModelSpec spec = model({3}, false);
  StageParameters parameters({.spec = spec,
                              .stage_of_layer = {0, 0, 0, 0},
                              .groups = groups_of(Mesh("cluster", 1, 1, 1), make_local_world()),
                              .sharding = {},
                              .values = at::TensorOptions(at::kFloat),
                              .trains = false});
  for (const auto* p : parameters.stored()) CHECK_FALSE(p->grad.defined());
  CHECK(parameters.counted_gradients().empty());
}

TEST_CASE("clipping follows torch's rule") {
  CHECK(clip_factor(4, 1) == Approx(1 / (4 + 1e-6)).epsilon(1e-15));
  CHECK(clip_factor(0.5, 1) == 1);
  CHECK(clip_factor(0, 1) == 1);
  CHECK(clip_factor(1e9, 0) == 1);
}

}  // namespace shardline::stage_parameters_test
