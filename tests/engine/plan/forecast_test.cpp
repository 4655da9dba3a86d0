// Every rank really holds the memory that the plan states, class by class, and no cut of a model loses a layer.
#include "engine/plan/forecast.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <set>

#include "core/comm/threads_communicator.h"
#include "core/error.h"
#include "engine/commands/parts/job_parts.h"
#include "engine/config/config.h"
#include "engine/config/rules/sizes.h"
#include "engine/plan/assignment.h"
#include "engine/train/trainer.h"
#include "tests/engine/train/ones_source.h"
#include "tests/engine/uneven_gpt2.h"

#include "tests/catch.h"

namespace shardline::forecast_test {
namespace {

constexpr int64_t kSamples = 12, kLength = 9;

struct Choice {
  int p = 1, t = 1, d = 1;
  std::string pipeline = "interleaved", recompute = "none", optimize = "memory", dtype = "float32";
  bool tied = true;
  int words = 61;
  std::string whole = "";  // a pattern of units that are not split over T; *e*: embedding and head
};

Config config_of(const Choice& c) {
  nlohmann::json file = {
      {"model", {{"config", uneven_gpt2(c.words, 0, c.tied)}}},
      {"data", {{"train", "unused"}, {"tokenizer", "bytes"}, {"sequence_length", kLength}}},
      {"training", {{"global_batch_size", kSamples}, {"max_steps", 10}}},
      {"smp_options",
       {{"optimize", c.optimize},
        {"activation_checkpointing", c.recompute},
        {"microbatches", 6},
        {"pipeline", c.pipeline},
        {"pipeline_parallel_degree", c.p},
        {"tensor_parallel_degree", c.t}}},
      {"mpi_options", {{"processes_per_host", c.p * c.t * c.d}}},
      {"runtime", {{"dtype", c.dtype}, {"communicator", c.p * c.t * c.d == 1 ? "local" : "threads"}}},
      {"output_dir", "unused"}};
  if (!c.whole.empty()) file["smp_options"]["tensor_parallel_layers"] = {{{"pattern", c.whole}, {"split", false}}};
  return parse_config(file.dump(), "forecast test");
}

// The bytes of an unsharded run. Both moments are as wide as the gradients, which are as wide as the weights.
MemoryBytes counted(RankTrainer& trainer, const Plan& plan, double width) {
  auto& parameters = trainer.parameters();
  std::set<const void*> seen;
  const auto padded = [&](const at::Tensor& part) {  // counts the elements of a flat buffer when it is seen first
    return seen.insert(part.storage().data()).second ? double(part.storage().nbytes()) / width : 0;
  };
  double values = 0, gradients = 0, trained = 0;  // elements
  for (const auto* parameter : parameters.stored()) values += padded(parameter->value);
  for (size_t layer = 0; layer < plan.stage_of_layer.size(); ++layer)
    if (plan.stage_of_layer[layer] == parameters.groups().coordinates.p)
      for (const auto* parameter : parameters.layer_params(int(layer))) gradients += padded(parameter->grad);
  for (const auto& range : parameters.trained_ranges()) trained += double(range.values.numel());
  return {.weights = width * values,
          .gradients = width * gradients,
          .optimizer = 2 * width * trained,
          .activations = static_cast<double>(trainer.last_step().peak_activation_bytes)};
}

void require_near(int rank, const char* what, double planned, double real) {
  if (std::abs(planned - real) > 0.05 * real)
    throw RunError(cat("rank ", rank, " holds ", real, " bytes of ", what, ", planned were ", planned));
}

void compare(const Choice& choice) {
  const Config config = config_of(choice);
  run_ranks(choice.p * choice.t * choice.d, [&](CommunicatorPtr world) {
    const auto [source, machines, plan] = plan_model(config, world->size());
    const Forecast forecast = make_forecast(config, machines, plan);
    RankTrainer trainer({config, plan, source, make_rank_groups(plan.layout.mesh(), world, world), at::kCPU}, 1);
    fill_parameters(config.model, source, 1, trainer.parameters());
    OnesSource data(kSamples, kLength);
    trainer.accumulate_gradients(data, 1);
    const int rank = world->rank();
    const MemoryBytes real = counted(trainer, plan, choice.dtype == "float64" ? 8 : 4);
    const MemoryBytes& told = forecast.memory[rank];
    require_near(rank, "weights", told.weights, real.weights);
    require_near(rank, "gradients", told.gradients, real.gradients);
    require_near(rank, "optimizer states", told.optimizer, real.optimizer);
    require_near(rank, "activations", told.activations, real.activations);
  });
}

}  // namespace

TEST_CASE("a plan's memory equals what every rank holds, class by class") {
  int settings = 0;
  for (const auto& [p, t, d] : {std::tuple{1, 1, 1}, {2, 1, 1}, {3, 1, 1}, {1, 2, 1}, {1, 3, 2}, {2, 2, 1}, {2, 3, 2}})
    for (const bool tied : {true, false})
      for (const std::string recompute : {"none", "selective", "each"}) {
        const Choice choice{.p = p,
                            .t = t,
                            .d = d,
                            .pipeline = p > 1 && recompute == "each" ? "zb_h1" : "interleaved",
                            .recompute = recompute,
                            .optimize = tied ? "memory" : "speed",
                            .dtype = recompute == "selective" ? "float64" : "float32",
                            .tied = tied,
                            .words = tied ? 61 : 611};
        CAPTURE(p, t, d, tied, recompute);
        CHECK_NOTHROW(compare(choice));
        ++settings;
      }
  for (const char* whole : {"*", "*attn", "*mlp", "*e*"})
    for (const std::string optimize : {"speed", "memory"})
      for (const bool tied : {true, false}) {
        CAPTURE(whole, optimize, tied);
        CHECK_NOTHROW(compare({.p = 2,
                               .t = 3,
                               .pipeline = tied ? "zb_h1" : "interleaved",
                               .recompute = tied ? "none" : "selective",
                               .optimize = optimize,
                               .tied = tied,
                               .whole = whole}));
        ++settings;
      }
  CHECK(settings >= 46);
}

TEST_CASE("no partition loses a layer or a parameter, for any model, degree and memory_weight") {
  std::mt19937 random(7);
  const auto pick = [&](int from, int to) { return std::uniform_int_distribution<int>(from, to)(random); };
  for (int round = 0; round < 200; ++round) {
    const int p = pick(1, 5), v = pick(1, 3), least = std::max(1, p * v - 2), layers = pick(least, least + 8);
    const int heads = pick(1, 4);
    nlohmann::json file = {{"model",
                            {{"config",
                              {{"model_type", "gpt2"},
                               {"n_layer", layers},
                               {"n_head", heads},
                               {"n_embd", heads * 4 * pick(1, 8)},
                               {"vocab_size", pick(5, 5000)},
                               {"n_positions", 16},
                               {"tie_word_embeddings", pick(0, 1) == 1}}}}},
                           {"data", {{"train", "unused"}, {"tokenizer", "bytes"}, {"sequence_length", pick(2, 16)}}},
                           {"training", {{"global_batch_size", 2 * p}}},
                           {"smp_options",
                            {{"pipeline_parallel_degree", p},
                             {"tensor_parallel_degree", pick(1, heads)},
                             {"microbatches", 2 * p},
                             {"memory_weight", pick(0, 4) / 4.0},
                             {"activation_checkpointing", pick(0, 1) == 1 ? "each" : "none"}}},
                           {"runtime", {{"communicator", "threads"}}},
                           {"output_dir", "unused"}};
    if (v > 1 && p > 1) file["smp_options"].update({{"pipeline", "interleaved_1f1b"}, {"virtual_pipeline_degree", v}});
    CAPTURE(file.dump());
    const Config config = parse_config(file.dump(), "cut");
    const auto [source, machines, plan] = plan_model(config, configured_world_size(config));
    REQUIRE(plan.chunk_of_layer.size() == source.spec.layers.size());
    CHECK(plan.chunk_of_layer.front() == 0);
    CHECK(plan.chunk_of_layer.back() == plan.train.chunks() - 1);
    for (size_t layer = 1; layer < plan.chunk_of_layer.size(); ++layer) {
      const int step = plan.chunk_of_layer[layer] - plan.chunk_of_layer[layer - 1];
      CHECK((step == 0 || step == 1));
    }
    int64_t stored = 0;
    for (int rank = 0; rank < plan.layout.world(); ++rank) stored += plan.parameters_by_rank[rank];
    CHECK(stored >= source.spec.parameter_count());
  }
}

}  // namespace shardline::forecast_test
