// Ids and labels outside the model's vocabulary, on every layout.
#include <ATen/ops/arange.h>

#include <nlohmann/json.hpp>

#include "core/comm/threads_communicator.h"
#include "core/error.h"
#include "engine/commands/parts/job_parts.h"
#include "engine/config/config.h"
#include "engine/generate/generator.h"
#include "tests/engine/uneven_gpt2.h"

#include "tests/catch.h"

namespace shardline::vocabulary_test {
namespace {

constexpr int kWords = 61;  // 3 ranks have 21, 20 and 20 of them
constexpr int64_t kSamples = 6, kLength = 8;

struct Degrees {
  int d = 1, p = 1, t = 1;
  std::string optimize = "speed", whole = "none";
  int world() const { return d * p * t; }
};

Config config_of(const Degrees& on) {
  nlohmann::json file = {
      {"model", {{"config", uneven_gpt2(kWords)}}},
      {"data", {{"train", "unused"}, {"tokenizer", "bytes"}, {"sequence_length", kLength}}},
      {"training", {{"global_batch_size", kSamples}}},
      {"smp_options",
       {{"pipeline_parallel_degree", on.p},
        {"tensor_parallel_degree", on.t},
        {"optimize", on.optimize},
        {"tensor_parallel_layers", {{{"pattern", "*"}, {"split", true}}, {{"pattern", on.whole}, {"split", false}}}}}},
      {"mpi_options", {{"processes_per_host", on.world()}}},
      {"runtime", {{"communicator", on.world() == 1 ? "local" : "threads"}}},
      {"output_dir", "unused"}};
  if (on.whole == "none") file["smp_options"].erase("tensor_parallel_layers");
  return parse_config(file.dump(), "vocabulary test");
}

// Runs `use` with a trainer on every rank; returns the message of the error that ended them, empty for none.
std::string run(const Degrees& on, const std::function<void(RankTrainer&, const ModelSpec&)>& use) {
  const Config config = config_of(on);
  try {
    run_ranks(on.world(), [&](const CommunicatorPtr& world) {
      const auto [source, machines, plan] = plan_model(config, world->size());
      RankTrainer trainer({config, plan, source, make_rank_groups(plan.layout.mesh(), world, world), at::kCPU}, 1);
      fill_parameters(config.model, source, 7, trainer.parameters());
      use(trainer, source.spec);
    });
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// A change of one id or of one label, with which a step or an evaluation runs.
struct Change {
  int64_t sample = 0, token = 0, id = 0, label = 0;
};
std::string step_with(const Degrees& on, const Change& change, bool train) {
  return run(on, [&](RankTrainer& trainer, const ModelSpec&) {
    const auto ids = at::arange(kSamples * kLength, at::kLong).view({kSamples, kLength});
    const auto labels = ids.clone();
    ids[change.sample][change.token] = change.id;
    labels[change.sample][change.token] = change.label;
    FedSource data;
    data.push(ids, labels);
    if (train)
      trainer.train_step(data, 1);
    else
      trainer.evaluate(data, 1);
  });
}

}  // namespace

TEST_CASE("ids and labels outside the vocabulary are refused on every layout, before anything is computed") {
  using Catch::Contains;
  for (const Degrees& on : {Degrees{}, Degrees{.t = 3}, Degrees{.t = 3, .optimize = "memory"},
                            Degrees{.t = 2, .optimize = "memory", .whole = "*e*"}, Degrees{.d = 2, .p = 2},
                            Degrees{.d = 2, .p = 2, .t = 3}})
    for (const bool train : {true, false}) {
      CAPTURE(on.d, on.p, on.t, on.optimize, on.whole, train);
      CHECK(step_with(on, {.sample = 4, .token = 5, .id = kWords - 1, .label = -100}, train).empty());
      CHECK(step_with(on, {.sample = 4, .token = 5, .id = 0, .label = kWords - 1}, train).empty());
      for (const int64_t id : {kWords, kWords + 1, -1, -100, 1 << 30}) {
        CAPTURE(id);
        CHECK_THAT(step_with(on, {.sample = 4, .token = 5, .id = id, .label = 3}, train),
                   Contains(cat("sample 4 (sample 4 of the data), token 5 has the id ", id)) &&
                       Contains(cat("vocabulary has ", kWords, " entries")));
        if (id == -100) continue;
        CHECK_THAT(step_with(on, {.sample = 1, .token = 2, .id = 3, .label = id}, train),
                   Contains(cat("sample 1 (sample 1 of the data), token 2 has the label ", id)) &&
                       Contains(cat("vocabulary has ", kWords, " entries")));
      }
    }
}

TEST_CASE("a prompt with an id outside the vocabulary is refused") {
  for (const int t : {1, 3})
    for (const int64_t id : {kWords, -1})
      CHECK_THAT(run({.t = t},
                     [&](RankTrainer& trainer, const ModelSpec& spec) {
                       generate(trainer, spec, {3, id}, 2, {}, {}, 0);
                     }),
                 Catch::Contains(cat("token 1 of the prompt has the id ", id)));
}

}  // namespace shardline::vocabulary_test
