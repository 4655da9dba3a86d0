// fp16 runs in which one rank's gradient overflows.
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>

#include <limits>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "core/comm/threads_communicator.h"
#include "core/model/backward.h"
#include "engine/config/config.h"
#include "engine/run/model_source.h"
#include "engine/train/trainer.h"
#include "models/families/families.h"
#include "tests/engine/train/ones_source.h"

#include "tests/catch.h"

namespace shardline::loss_scale_test {
namespace {

constexpr int kSteps = 6;
constexpr int64_t kOverflows = 3;  // this step's

struct Case {
  int d = 1, p = 1, t = 1;
  std::string sharding = "none", pipeline = "interleaved";
  int world() const { return d * p * t; }
};

Config config_of(const Case& c) {
  nlohmann::json file = {{"model",
                          {{"config",
                            {{"model_type", "gpt2"},
                             {"n_layer", 4},
                             {"n_head", 4},
                             {"n_embd", 16},
                             {"vocab_size", 61},
                             {"n_positions", 16}}}}},
                         {"data", {{"train", "unused"}, {"tokenizer", "bytes"}, {"sequence_length", 12}}},
                         {"training",
                          {{"global_batch_size", 8},
                           {"learning_rate", 1e-3},
                           {"warmup_steps", 10},
                           {"max_steps", 20},
                           {"fp16", true},
                           {"dynamic_loss_args", {{"init_scale", 256}, {"scale_window", 2}}}}},
                         {"smp_options",
                          {{"pipeline_parallel_degree", c.p},
                           {"tensor_parallel_degree", c.t},
                           {"microbatches", 2},
                           {"pipeline", c.pipeline},
                           {"ddp", true},
                           {"shard_optimizer_state", c.sharding == "ZeRO-1"},
                           {"sharded_data_parallel_degree", c.sharding == "ZeRO-3" ? c.d : 1}}},
                         {"mpi_options", {{"processes_per_host", c.world()}}},
                         {"runtime", {{"communicator", c.world() == 1 ? "local" : "threads"}}},
                         {"output_dir", "unused"}};
  if (c.sharding == "ZeRO-3") file["smp_options"]["sdp_param_persistence_threshold"] = 0;
  return parse_config(file.dump(), "loss scale test");
}

// A layer that treats the gradient of its output as infinite in one step.
class Overflowing : public Layer {
 public:
  explicit Overflowing(std::unique_ptr<Layer> layer) : layer_(std::move(layer)) {}

  Border forward(const Border& input, MicrobatchContext& context) override {
    Border output = layer_->forward(input, context);
    if (context.mode == Mode::train && context.step == kOverflows)
      output.at(0) = with_backward(output[0].detach(), {output[0]}, {}, "Overflow",
                                   [](const at::Tensor& gradient, const SavedTensors&) {
                                     return std::vector<at::Tensor>{gradient * std::numeric_limits<float>::infinity()};
                                   });
    return output;
  }

 private:
  std::unique_ptr<Layer> layer_;
};

std::map<std::string, at::Tensor> values_of(StageParameters& parameters) {
  std::map<std::string, at::Tensor> values;
  parameters.visit_values([&](const Parameter& parameter) { values[parameter.name] = parameter.value.clone(); });
  return values;
}

bool same(const std::map<std::string, at::Tensor>& a, const std::map<std::string, at::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& x, const auto& y) { return x.first == y.first && at::equal(x.second, y.second); });
}

struct Seen {
  std::vector<double> scales, rates;
  std::vector<bool> overflowed, moved;
};

// What every rank saw if rank `culprit` overflows (-1: none).
std::vector<Seen> train(const Case& c, int culprit) {
  std::vector<Seen> seen(c.world());
  run_ranks(c.world(), [&](const CommunicatorPtr& world) {
    const Config config = config_of(c);
    auto [model, machines, plan] = plan_model(config, world->size());
    if (world->rank() == culprit)
      for (auto& layer : model.spec.layers)
        layer.build = [build = layer.build](const LayerBuild& with) {
          return std::make_unique<Overflowing>(build(with));
        };
    RankTrainer trainer({config, plan, model, make_rank_groups(plan.layout.mesh(), world, world), at::kCPU}, 20);
    fill_parameters(config.model, model, 7, trainer.parameters());
    OnesSource data(8, 12);
    Seen& mine = seen[world->rank()];
    for (int step = 1; step <= kSteps; ++step) {
      const auto before = values_of(trainer.parameters());
      const StepMetrics metrics = trainer.train_step(data, step);
      mine.scales.push_back(metrics.loss_scale.value().scale);
      mine.overflowed.push_back(metrics.loss_scale->overflowed);
      mine.rates.push_back(metrics.learning_rate);
      mine.moved.push_back(!same(before, values_of(trainer.parameters())));
    }
  });
  return seen;
}

}  // namespace

TEST_CASE("an overflow on any rank makes all ranks skip the step, and the scale and learning rate follow") {
  const std::vector<Case> cases = {{},
                                   {.d = 2, .p = 2, .t = 2},
                                   {.d = 2, .p = 2, .sharding = "ZeRO-1", .pipeline = "zb_h1"},
                                   {.d = 2, .p = 2, .sharding = "ZeRO-3"}};
  for (const Case& c : cases)
    for (int culprit = 0; culprit < c.world(); ++culprit) {
      const auto ranks = train(c, culprit);
      for (size_t rank = 0; rank < ranks.size(); ++rank) {
        CAPTURE(c.d, c.p, c.t, c.sharding, culprit, rank);
        const Seen& r = ranks[rank];
        CHECK(r.overflowed == std::vector<bool>{false, false, true, false, false, false});
        CHECK(r.scales == std::vector<double>{256, 256, 512, 256, 256, 512});
        // The first step of a warm-up has learning rate 0.
        CHECK(r.moved == std::vector<bool>{false, true, false, true, true, true});
        CHECK(r.rates[3] == r.rates[2]);
        CHECK(r.rates[4] == Approx(3e-4));
      }
    }
}

TEST_CASE("without an overflow nothing is skipped") {
  for (const Seen& rank : train({.p = 2}, -1)) {
    CHECK(rank.scales == std::vector<double>{256, 256, 512, 512, 1024, 1024});
    CHECK(rank.overflowed == std::vector<bool>(kSteps, false));
    CHECK(rank.rates[5] == Approx(5e-4));
  }
}

}  // namespace shardline::loss_scale_test
