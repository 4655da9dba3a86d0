#include "engine/train/trainer.h"

#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/comm/clock.h"
#include "core/comm/threads_communicator.h"
#include "core/error.h"
#include "engine/config/config.h"
#include "tests/engine/train/ones_source.h"

#include "tests/catch.h"

namespace shardline::trainer_test {

using Catch::Contains;

namespace {

constexpr int64_t kSamples = 4, kLength = 12;

Config config_of(int d, int p) {
  const nlohmann::json file = {
      {"model",
       {{"config",
         {{"model_type", "gpt2"},
          {"n_layer", 2},
          {"n_head", 2},
          {"n_embd", 8},
          {"vocab_size", 7},
          {"n_positions", 16}}}}},
      {"data", {{"train", "unused"}, {"tokenizer", "bytes"}, {"sequence_length", kLength}}},
      {"training", {{"global_batch_size", kSamples}, {"max_steps", 20}}},
      {"smp_options", {{"pipeline_parallel_degree", p}, {"microbatches", p}, {"shard_optimizer_state", d > 1}}},
      {"mpi_options", {{"processes_per_host", d * p}}},
      {"runtime", {{"communicator", d * p == 1 ? "local" : "threads"}}},
      {"output_dir", "unused"}};
  return parse_config(file.dump(), "trainer test");
}

void with_trainers(int d, int p, const std::function<void(RankTrainer&)>& work) {
  run_ranks(d * p, [&](const CommunicatorPtr& world) {
    const Config config = config_of(d, p);
    const auto [model, machines, plan] = plan_model(config, world->size());
    RankTrainer trainer({config, plan, model, make_rank_groups(plan.layout.mesh(), world, world), at::kCPU}, 20);
    fill_parameters(config.model, model, 7, trainer.parameters());
    work(trainer);
  });
}

// Only one rank may check at a time.
bool is_first(RankTrainer& trainer) {
  return trainer.parameters().groups().world->rank() == 0;
}

// Returns the message of the DataError that all ranks throw; empty if they throw none.
std::string data_error(int d, int p, const std::function<void(RankTrainer&)>& work) {
  try {
    with_trainers(d, p, work);
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

// One batch per letter: 'i': all labels are ignored; 't': all tokens count.
FedSource fed(const std::string& batches) {
  FedSource source;
  for (const char batch : batches) {
    const auto ids = at::full({kSamples, kLength}, 3, at::kLong);
    source.push(ids, batch == 'i' ? at::full_like(ids, -100) : ids);
  }
  return source;
}

class SlowSource : public OnesSource {
 public:
  SlowSource() : OnesSource(kSamples, kLength) {}
  Batch batch(int64_t step, const BatchSlice& slice) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    return OnesSource::batch(step, slice);
  }
};

}  // namespace

TEST_CASE("a step or an evaluation without a token to predict is an error") {
  for (const auto& [d, p] : {std::pair(1, 1), {2, 2}}) {
    CAPTURE(d, p);
    CHECK_THAT(data_error(d, p,
                          [](RankTrainer& trainer) {
                            FedSource source = fed("ti");
                            trainer.train_step(source, 1);
                            trainer.train_step(source, 2);
                          }),
               Contains("step 2") && Contains("no token to predict"));
    CHECK_THAT(data_error(d, p,
                          [](RankTrainer& trainer) {
                            FedSource source = fed("ii");
                            trainer.evaluate(source, 2);
                          }),
               Contains("evaluation") && Contains("no token to predict"));
    // Some batches of an evaluation may have no token to predict.
    with_trainers(d, p, [](RankTrainer& trainer) {
      FedSource source = fed("iti");
      const LossTerm loss = trainer.evaluate(source, 3);
      if (!is_first(trainer)) return;
      CHECK(loss.weight == kSamples * (kLength - 1));
      CHECK(std::isfinite(loss.sum / loss.weight));
    });
  }
}

TEST_CASE("the time of a step excludes an evaluation before it, and its tokens are those of its batch") {
  with_trainers(2, 2, [](RankTrainer& trainer) {
    SlowSource validation;
    FedSource data;
    for (const int64_t samples : {4, 1, 3}) data.push(at::full({samples, kLength / 2}, 3, at::kLong));
    for (int step = 1; step <= 3; ++step) {
      trainer.evaluate(validation, 1);
      const double begin = steady_seconds();
      const StepMetrics metrics = trainer.train_step(data, step);
      const double seconds = steady_seconds() - begin;
      if (!is_first(trainer)) continue;
      const int64_t samples = data.samples_in_step(step - 1);
      CHECK(metrics.step == step);
      CHECK(metrics.step_seconds <= seconds);
      CHECK(metrics.samples_per_second == Approx(static_cast<double>(samples) / metrics.step_seconds));
      CHECK(metrics.tokens == samples * kLength / 2);
      CHECK(metrics.bubble_fraction >= 0);
      CHECK(metrics.bubble_fraction < 1);
      CHECK(metrics.exposed_communication_fraction >= 0);
      CHECK(metrics.exposed_communication_fraction < 1);
      CHECK(trainer.last_step().start >= begin);
    }
  });
}

}  // namespace shardline::trainer_test
