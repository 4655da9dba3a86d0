// With trained values on the host, values, gradients and states are separate from those of the passes. On CPUs, this
// must give the same bits as a run without a link; links that copy as late as allowed reveal missing waits.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>
#include <map>
#include <mutex>

#include "core/comm/local_communicator.h"
#include "core/comm/threads_communicator.h"
#include "core/error.h"
#include "core/memory/caching_allocator.h"
#include "optim/update/adam.h"
#include "optim/update/gradient_norm.h"
#include "optim/update/optimizer.h"

#include "tests/catch.h"

namespace shardline::host_states_test {
namespace {

using Kind = OptimizerOptions::Kind;
using Level = Sharding::Level;
using Seen = std::map<std::string, at::Tensor>;

constexpr int kSteps = 4, kSkipped = 2;

// Split, replicated, partial, tied and frozen parameters on two or four layers.
ModelSpec model() {
  ModelSpec spec{.family = "toy"};
  for (const char* name : {"a", "b", "c", "d"}) {
    LayerSpec layer{.name = name};
    if (spec.layers.empty()) layer.params.push_back({.name = "words", .shape = {7, 6}, .split_dim = 0});
    layer.params.push_back({.name = "weight", .shape = {11, 5}, .split_dim = 0, .deferred = true});
    layer.params.push_back({.name = "norm", .shape = {9}, .decays = false, .partial_over_t = true});
    layer.params.push_back({.name = "frozen", .shape = {3, 4}, .trainable = false});
    if (*name == 'b' || *name == 'd')
      layer.params.push_back({.name = "use", .shape = {7, 6}, .split_dim = 0, .tied_to = "a.words"});
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

// Copies when the side that uses the result waits, and no earlier. Until then, the target has no valid numbers.
class LateCopy : public HostCopy {
 public:
  LateCopy(at::Tensor to, at::Tensor from, bool for_host)
      : to_(std::move(to)), from_(std::move(from)), for_host_(for_host) {
    to_.fill_(std::numeric_limits<double>::quiet_NaN());
  }
  void wait() override { copy(); }
  void go_before() override {
    if (!for_host_) copy();
  }

 private:
  void copy() {
    if (!made_) to_.copy_(from_);
    made_ = true;
  }
  at::Tensor to_, from_;
  bool for_host_, made_ = false;
};

// forgets_values: a device that runs ahead of copies to it.
class LateLink : public HostLink {
 public:
  explicit LateLink(bool forgets_values = false) : forgets_values_(forgets_values) {}
  at::Tensor zeros(int64_t elements, at::ScalarType type) const override { return at::zeros({elements}, type); }
  HostCopyPtr to_host(const at::Tensor& to, const at::Tensor& from) override {
    return std::make_shared<LateCopy>(to, from, true);
  }
  HostCopyPtr to_device(const at::Tensor& to, const at::Tensor& from) override {
    return std::make_shared<LateCopy>(to, from, forgets_values_);
  }

 private:
  bool forgets_values_;
};

enum class Fault { none, updates_early, hands_on_late, passes_run_ahead };

// How a run stores trained values. Each rank has its own link.
struct Place {
  std::function<HostLinkPtr()> link = [] { return nullptr; };
  Fault fault = Fault::none;
};

struct Case {
  Mesh mesh;
  Sharding sharding;
  std::vector<int> stage_of_layer = {0, 0, 0, 0};
  at::ScalarType type = at::kFloat;
  OptimizerOptions optimizer;
};

at::Tensor numbers(at::IntArrayRef sizes, double key) {
  return at::sin(at::arange(c10::multiply_integers(sizes), at::kFloat) * 0.37 + key).reshape(sizes);
}

// One run on one rank.
class Rank {
 public:
  Rank(const ModelSpec& spec, const Case& c, const Place& place, const CommunicatorPtr& world)
      : case_(c),
        rank_(world->rank()),
        parameters_({.spec = spec,
                     .stage_of_layer = c.stage_of_layer,
                     .groups = make_rank_groups(c.mesh, world, world),
                     .sharding = c.sharding,
                     .values = at::TensorOptions(c.type),
                     .host = place.link()}) {
    for (size_t layer = 0; layer < spec.layers.size(); ++layer)
      if (c.stage_of_layer[layer] == parameters_.groups().coordinates.p) layers_.push_back(static_cast<int>(layer));
    fill(0.5);
    if (place.fault == Fault::none || place.fault == Fault::passes_run_ahead) {
      optimizer_ = make_optimizer(c.optimizer, parameters_);
    } else {
      auto ranges = parameters_.trained_ranges();
      for (auto& range : ranges)
        (place.fault == Fault::updates_early ? range.await_gradients : range.values_changed) = nullptr;
      optimizer_ = std::make_unique<Adam>(ranges, c.optimizer);
    }
  }

  Seen train() {
    for (int step = 1; step <= kSteps; ++step) {
      run_passes(step);
      look_at_gradients(cat("step ", step, " gradient of "));
      const double norm = GradientNorm(parameters_).value();
      seen_[cat(rank_, " norm ", step)] = at::zeros({1}, at::kDouble).fill_(norm);
      if (step == kSkipped) continue;  // as after an overflow
      parameters_.bring_gradients();
      optimizer_->step(0.01 * step, clip_factor(norm, 0.5));
      parameters_.publish_values();
    }
    look_at_values("trained ");
    fill(2.5);  // immediately after an update
    run_passes(kSteps + 1);
    look_at_values("filled again ");
    return std::move(seen_);
  }

 private:
  void fill(double key) {
    parameters_.fill_values(
        [&](Parameter& p) { p.value.copy_(numbers(p.value.sizes(), key + static_cast<double>(p.name.size()))); });
  }

  // Gradients are computed from the values that passes see, so a wrong value has lasting effects.
  void run_passes(int step) {
    parameters_.zero_gradients();
    std::vector<int> order = layers_;
    order.insert(order.end(), layers_.rbegin(), layers_.rend());
    parameters_.begin_run(order);
    for (size_t i = 0; i < order.size(); ++i) {
      const int layer = order[i];
      parameters_.acquire(layer);
      if (i < layers_.size())
        look(cat("step ", step, " value of "), layer);
      else
        add_gradients(step, layer);
      parameters_.release(layer);
    }
    parameters_.settle_gradients();
    parameters_.finish_gradients();
  }

  void look(const std::string& what, int layer) {
    for (const auto* p : parameters_.layer_params(layer))
      seen_[cat(rank_, " ", what, layer, " ", p->name)] = p->value.clone();
  }

  void add_gradients(int step, int layer) {
    const auto& at = parameters_.groups().coordinates;
    for (const bool deferred : {false, true}) {
      parameters_.open_gradients(layer, deferred);
      for (const auto* p : parameters_.layer_params(layer))
        if (p->grad.defined() && p->spec->deferred == deferred)
          p->grad.add_(p->value.to(at::kFloat) * 0.25 + numbers(p->value.sizes(), step + 10 * at.d + layer));
      parameters_.close_gradients(layer, deferred, /*last=*/true);
    }
  }

  void look_at_gradients(const std::string& what) {
    const auto parts = parameters_.counted_gradients();
    for (size_t i = 0; i < parts.size(); ++i) seen_[cat(rank_, " ", what, "part ", i)] = parts[i].clone();
  }
  void look_at_values(const std::string& what) {
    parameters_.visit_values([&](const Parameter& p) { seen_[cat(rank_, " ", what, p.name)] = p.value.clone(); });
  }

  const Case& case_;
  int rank_;
  StageParameters parameters_;
  std::vector<int> layers_;
  std::unique_ptr<Optimizer> optimizer_;
  Seen seen_;
};

// Everything that the ranks of a run see.
Seen run(const Case& c, const Place& place) {
  const ModelSpec spec = model();
  Seen all;
  std::mutex mutex;
  run_ranks(c.mesh.size(), [&](CommunicatorPtr world) {
    Seen mine = Rank(spec, c, place, world).train();
    const std::scoped_lock lock(mutex);
    all.merge(mine);
  });
  return all;
}

std::vector<std::string> differences(const Seen& a, const Seen& b) {
  std::vector<std::string> names;
  if (a.size() != b.size()) names.push_back("number of things seen");
  for (const auto& [name, value] : a) {
    const auto other = b.find(name);
    if (other == b.end() || value.scalar_type() != other->second.scalar_type() || !at::equal(value, other->second))
      names.push_back(name);
  }
  return names;
}

const Place kDevice, kHost{.link = [] { return make_host_link(at::kCPU); }},
    kLate{.link = [] { return std::make_shared<LateLink>(); }};

std::vector<Case> layouts() {
  std::vector<Case> all = {{Mesh("cluster", 1, 1, 1), {}, {0, 0, 0, 0}, at::kFloat, {}},
                           {Mesh("cluster", 2, 2, 2), {}, {0, 0, 1, 1}, at::kFloat, {}}};
  for (const auto level : {Level::optimizer, Level::gradients, Level::weights}) {
    all.push_back({Mesh("cluster", 4, 1, 2), {.level = level, .degree = 4}, {0, 0, 0, 0}, at::kFloat, {}});
    all.push_back({Mesh("PDT", 2, 2, 1), {.level = level, .degree = 2}, {0, 0, 1, 1}, at::kFloat, {}});
  }
  all.push_back({Mesh("cluster", 4, 1, 1),
                 {.level = Level::weights, .degree = 2, .whole_below = 10},
                 {0, 0, 0, 0},
                 at::kFloat,
                 {}});
  return all;
}

const OptimizerOptions kAdamW{.kind = Kind::adamw, .weight_decay = 0.1};

}  // namespace

TEST_CASE("states on the host give the bits of states on the device, even if copies come as late as they may") {
  const OptimizerOptions optimizers[] = {kAdamW,
                                         {.kind = Kind::adam, .weight_decay = 0.1, .max_gradient_value = 0.02},
                                         {.kind = Kind::sgd, .momentum = 0.9, .nesterov = true},
                                         {.kind = Kind::sgd},
                                         {.kind = Kind::adafactor, .weight_decay = 0.1}};
  for (Case c : layouts())
    for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble})
      for (const auto& optimizer : optimizers) {
        const bool adamw = optimizer.kind == Kind::adamw;
        if (!adamw && (type == at::kHalf || type == at::kDouble)) continue;
        c.type = type;
        c.optimizer = optimizer;
        CAPTURE(c.mesh.d(), c.mesh.p(), c.mesh.t(), static_cast<int>(c.sharding.level), c.sharding.degree, type,
                static_cast<int>(optimizer.kind), optimizer.momentum);
        const Seen exact = run(c, kDevice);
        CHECK(differences(exact, run(c, kHost)) == std::vector<std::string>{});
        CHECK(differences(exact, run(c, kLate)) == std::vector<std::string>{});
        // The run makes progress: passes see other values after each step except the skipped one.
        const auto value = [&](int step) {
          return exact.at(cat("0 step ", step, " value of 0 a.words")).to(at::kDouble);
        };
        CHECK_FALSE(at::equal(value(1), value(2)));
        CHECK(at::equal(value(2), value(3)));
        CHECK_FALSE(at::equal(value(3), value(4)));
      }
}

TEST_CASE("a missing wait for a copy is detected") {
  for (Case c : layouts())
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      c.type = type;
      c.optimizer = kAdamW;
      CAPTURE(c.mesh.d(), c.mesh.p(), c.mesh.t(), static_cast<int>(c.sharding.level), c.sharding.degree, type);
      const Seen exact = run(c, kDevice);
      CHECK_THROWS_AS(run(c, {.link = kLate.link, .fault = Fault::updates_early}), InvariantError);
      const auto ahead = [] { return std::make_shared<LateLink>(/*forgets_values=*/true); };
      CHECK_FALSE(differences(exact, run(c, {.link = ahead, .fault = Fault::passes_run_ahead})).empty());
      // Publishing detects updates that were not handed on.
      CHECK(differences(exact, run(c, {.link = kLate.link, .fault = Fault::hands_on_late})).empty());
    }
}

namespace {

// Records the calls in order; a range is identified by its length.
class ToldLink : public HostLink {
 public:
  explicit ToldLink(std::vector<std::string>& events) : events_(events) {}
  at::Tensor zeros(int64_t elements, at::ScalarType type) const override { return at::zeros({elements}, type); }
  HostCopyPtr to_host(const at::Tensor& to, const at::Tensor& from) override {
    to.copy_(from);
    return tell("down ", "have ", to.numel());
  }
  HostCopyPtr to_device(const at::Tensor& to, const at::Tensor& from) override {
    to.copy_(from);
    return tell("up ", "use ", to.numel());
  }

 private:
  struct Copy : HostCopy {
    Copy(std::vector<std::string>& to, std::string what) : events(to), use(std::move(what)) {}
    void wait() override { events.push_back(use); }
    void go_before() override { events.push_back(use); }
    std::vector<std::string>& events;
    std::string use;
  };
  HostCopyPtr tell(const char* starts, const char* uses, int64_t elements) {
    events_.push_back(cat(starts, elements));
    return std::make_shared<Copy>(events_, cat(uses, elements));
  }
  std::vector<std::string>& events_;
};

// Three layers with 64, 128 and 192 elements.
ModelSpec three_sizes() {
  ModelSpec spec{.family = "toy"};
  for (const int64_t size : {64, 128, 192})
    spec.layers.push_back({.name = cat("l", size), .params = {{.name = "w", .shape = {size / 8, 8}}}});
  return spec;
}

StageSetup alone(const ModelSpec& spec, const std::vector<int>& stages, const RankGroups& groups, HostLinkPtr host) {
  return {.spec = spec,
          .stage_of_layer = stages,
          .groups = groups,
          .sharding = {},
          .values = at::TensorOptions(at::kFloat),
          .host = std::move(host)};
}

const std::vector<int> kOneStage = {0, 0, 0};

}  // namespace

TEST_CASE(
    "copies of all gradients start before the first update, and those of a range's values before the next update") {
  const ModelSpec spec = three_sizes();
  const RankGroups groups = make_rank_groups(Mesh("cluster", 1, 1, 1), make_local_world(), make_local_world());
  for (const auto kind : {Kind::adamw, Kind::sgd, Kind::adafactor}) {
    std::vector<std::string> events;
    StageParameters parameters(alone(spec, kOneStage, groups, std::make_shared<ToldLink>(events)));
    const auto optimizer = make_optimizer({.kind = kind}, parameters);
    parameters.bring_gradients();
    optimizer->step(0.1, 1);
    parameters.publish_values();
    parameters.begin_run({0, 1, 2});
    for (const int layer : {0, 1, 2}) parameters.acquire(layer), parameters.release(layer);
    std::vector<std::string> expected = {"down 64", "down 128", "down 192"};
    if (kind == Kind::adafactor)  // its means are over all gradients
      expected.insert(expected.end(), {"have 64", "have 128", "have 192", "up 64", "up 128", "up 192"});
    else
      expected.insert(expected.end(), {"have 64", "up 64", "have 128", "up 128", "have 192", "up 192"});
    expected.insert(expected.end(), {"use 64", "use 128", "use 192"});
    CHECK(events == expected);
  }
}

TEST_CASE("an update without gradients on the host, and copying gradients twice, fail an assertion") {
  const ModelSpec spec = three_sizes();
  const RankGroups groups = make_rank_groups(Mesh("cluster", 1, 1, 1), make_local_world(), make_local_world());
  StageParameters parameters(alone(spec, kOneStage, groups, make_host_link(at::kCPU)));
  const auto optimizer = make_optimizer(kAdamW, parameters);
  CHECK_THROWS_AS(optimizer->step(0.1, 1), InvariantError);
  parameters.bring_gradients();
  CHECK_THROWS_AS(parameters.bring_gradients(), InvariantError);
}

TEST_CASE("values on the host count as the optimizer's, and the device keeps no master") {
  use_caching_allocator();
  const ModelSpec spec = model();
  const RankGroups groups = make_rank_groups(Mesh("cluster", 1, 1, 1), make_local_world(), make_local_world());
  const auto bytes_of = [&](at::ScalarType type, const HostLinkPtr& host) {
    const auto before = memory_totals().now;
    StageParameters parameters({.spec = spec,
                                .stage_of_layer = {0, 0, 0, 0},
                                .groups = groups,
                                .sharding = {},
                                .values = at::TensorOptions(type),
                                .host = host});
    const auto after = memory_totals().now;
    const auto of = [&](MemoryClass memory) {
      return after[static_cast<size_t>(memory)] - before[static_cast<size_t>(memory)];
    };
    int64_t trained = 0;
    for (const auto& range : parameters.trained_ranges()) trained += range.values.numel();
    const int64_t weights = of(MemoryClass::weights);
    return std::array<int64_t, 5>{weights, of(MemoryClass::gradients), of(MemoryClass::optimizer), trained,
                                  weights / static_cast<int64_t>(elementSize(type)) - trained};
  };
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const auto device = bytes_of(type, nullptr), host = bytes_of(type, make_host_link(at::kCPU));
    CAPTURE(type);
    CHECK(host[0] == device[0]);
    CHECK(host[1] == device[1]);
    CHECK(host[3] == device[3]);
    CHECK(device[4] > 0);  // frozen values have masters, too
    CHECK(device[2] == (type == at::kFloat ? 0 : 4) * (device[3] + device[4]));
    // Values and gradients in fp32, and values as passes see them.
    CHECK(host[2] == (type == at::kFloat ? 8 : 10) * host[3] + (type == at::kFloat ? 0 : 4) * host[4]);
  }
}

}  // namespace shardline::host_states_test
