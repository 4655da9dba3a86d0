// Compares continuing a prompt from cached keys and values with computing all positions again for every token.
#include "engine/generate/generator.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>

#include <deque>
#include <limits>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "core/comm/threads_communicator.h"
#include "engine/commands/parts/job_parts.h"
#include "engine/config/config.h"
#include "tensor_parallel/ops/attention.h"
#include "tests/engine/uneven_gpt2.h"

#include "tests/catch.h"

namespace shardline::generator_test {
namespace {

struct Degrees {
  int p = 1, t = 1;
  std::string optimize = "speed", whole = "none";
};

Config config_of(nlohmann::json model, const Degrees& on) {
  model["initializer_range"] = 0.3;
  nlohmann::json file = {
      {"model", {{"config", model}}},
      {"data", {{"train", "unused"}, {"tokenizer", "bytes"}, {"sequence_length", 16}}},
      {"training", {{"global_batch_size", 2}}},
      {"smp_options",
       {{"pipeline_parallel_degree", on.p}, {"tensor_parallel_degree", on.t}, {"optimize", on.optimize}}},
      {"runtime", {{"dtype", "float64"}, {"communicator", on.p * on.t == 1 ? "local" : "threads"}}},
      {"output_dir", "unused"}};
  file["smp_options"]["tensor_parallel_layers"] = {{{"pattern", "*"}, {"split", true}}};
  if (on.whole != "none")
    file["smp_options"]["tensor_parallel_layers"].push_back({{"pattern", on.whole}, {"split", false}});
  return parse_config(file.dump(), "generator test");
}

struct Outcome {
  std::vector<int32_t> cached, anew;
  double apart = 0;  // largest difference of the next logits between a prefix that is read in pieces and a whole one
};

Outcome run(const nlohmann::json& model, const Degrees& on) {
  const Config config = config_of(model, on);
  Outcome outcome;
  std::mutex mutex;
  run_ranks(on.p * on.t, [&](CommunicatorPtr world) {
    const auto [source, machines, plan] = plan_model(config, world->size());
    RankTrainer trainer({config, plan, source, make_rank_groups(plan.layout.mesh(), world, world), at::kCPU}, 0);
    fill_parameters(config.model, source, 7, trainer.parameters());
    const std::vector<int64_t> prompt = {3, 14, 15, 9};
    const auto cached = generate(trainer, source.spec, prompt, 20, {}, {.temperature = 0}, 0, true);
    const auto anew = generate(trainer, source.spec, prompt, 20, {}, {.temperature = 0}, 0, false);

    const auto ids = (at::arange(32, at::kLong) * 7).remainder(61).view({2, 16});
    std::deque<KvCache> caches(source.spec.layers.size());
    std::vector<KvCache*> by_layer;
    for (auto& cache : caches) by_layer.push_back(&cache);
    double apart = 0;
    for (const auto& [first, length] : {std::pair<int64_t, int64_t>{0, 5}, {5, 1}, {6, 9}, {15, 1}}) {
      const auto piece = trainer.next_logits(ids.narrow(1, first, length).contiguous(), first, by_layer);
      const auto whole = trainer.next_logits(ids.narrow(1, 0, first + length).contiguous(), 0, {});
      const double difference = (piece - whole).abs().max().item<double>();
      apart = difference <= apart ? apart : difference;
    }
    std::scoped_lock lock(mutex);
    if (outcome.cached.empty()) outcome = {cached, anew, 0};
    outcome.apart = apart <= outcome.apart ? outcome.apart : apart;
    if (cached != outcome.cached || anew != outcome.anew) outcome.apart = std::numeric_limits<double>::infinity();
  });
  return outcome;
}

}  // namespace

TEST_CASE("kept keys and values give the tokens of computing everything anew, on every layout") {
  for (const auto& model : {uneven_gpt2(61, 0.1), uneven_gptj(0.1), uneven_gpt_neo(0.1), uneven_decoder_of("bert"),
                            uneven_decoder_of("roberta")}) {
    const Outcome one = run(model, {});
    CHECK(one.cached.size() == 12);  // up to the last of 16 positions
    for (const Degrees& on : {Degrees{}, Degrees{2, 1}, Degrees{1, 3}, Degrees{1, 2, "memory"},
                              Degrees{2, 2, "memory", "*attn"}, Degrees{1, 3, "memory", "*"}}) {
      CAPTURE(model.at("model_type"), on.p, on.t, on.optimize, on.whole);
      const Outcome outcome = run(model, on);
      CHECK(outcome.cached == one.cached);
      CHECK(outcome.anew == one.cached);
      CHECK(outcome.apart <= 1e-12);
    }
  }
}

TEST_CASE("top_p is a share of the probability that top_k leaves") {
  // 0.4, 0.3, 0.2, 0.1: the first two have 0.78 of the sum of the first three.
  const auto logits = at::tensor({0.2, 0.4, 0.1, 0.3}, at::kDouble).log();
  const auto drawn = [&](const Sampling& sampling) {
    std::set<int64_t> tokens;
    for (int64_t position = 0; position < 200; ++position) tokens.insert(sample_token(logits, sampling, 0, position));
    return tokens;
  };
  CHECK(drawn({.top_p = 0.75}) == std::set<int64_t>{0, 1, 3});
  CHECK(drawn({.top_k = 3, .top_p = 0.75}) == std::set<int64_t>{1, 3});
  CHECK(drawn({.top_k = 3, .top_p = 0.8}) == std::set<int64_t>{0, 1, 3});
  CHECK(drawn({.top_k = 2}) == std::set<int64_t>{1, 3});
  CHECK(drawn({.top_p = 0}) == std::set<int64_t>{1});
}

}  // namespace shardline::generator_test
