#include "engine/train/layout_check.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "core/comm/local_communicator.h"
#include "core/comm/threads_communicator.h"
#include "engine/config/config.h"
#include "engine/data/dataset/repeated_batch.h"
#include "engine/plan/plan.h"
#include "models/families/families.h"
#include "models/traced/traced_family.h"
#include "tests/models/golden.h"

#include "tests/catch.h"

namespace shardline::layout_check_test {
namespace {

using Differences = std::vector<LayoutDifference>;

constexpr int64_t kWords = 29, kLength = 6, kSamples = 4;

Config config_of(int p, int t, int d) {
  const nlohmann::json model = {
      {"model_type", "gpt2"}, {"n_layer", 3},           {"n_head", 2},        {"n_embd", 8},
      {"vocab_size", kWords}, {"n_positions", kLength}, {"resid_pdrop", 0.1}, {"initializer_range", 0.2}};
  const nlohmann::json file = {
      {"model", {{"config", model}}},
      {"data", {{"train", "unused"}, {"tokenizer", "bytes"}, {"sequence_length", kLength}}},
      {"training", {{"global_batch_size", kSamples}, {"trainable", {"*"}}}},
      {"smp_options", {{"pipeline_parallel_degree", p}, {"tensor_parallel_degree", t}, {"microbatches", 2}}},
      {"mpi_options", {{"processes_per_host", p * t * d}}},
      {"runtime", {{"dtype", "float64"}, {"communicator", p * t * d == 1 ? "local" : "threads"}}},
      {"output_dir", "unused"}};
  return parse_config(file.dump(), "layout check");
}

// A program whose heads are split, which divides a dimension of their weights into several dimensions.
Config program_config(int t) {
  const nlohmann::json file = {
      {"model", {{"path", golden("program/heads.pt2")}}},
      {"data", {{"train", "unused"}, {"tokenizer", "bytes"}, {"sequence_length", kLength}}},
      {"training", {{"global_batch_size", kSamples}}},
      {"smp_options", {{"tensor_parallel_degree", t}, {"optimize", "speed"}, {"microbatches", 2}}},
      {"mpi_options", {{"processes_per_host", t}}},
      {"runtime", {{"dtype", "float64"}, {"communicator", t == 1 ? "local" : "threads"}}},
      {"output_dir", "unused"}};
  return parse_config(file.dump(), "layout check of a program");
}

// Attention whose keys have a bias of their own, with a gradient of zero: softmax ignores what all keys add to a query.
struct SeparateBlock : torch::nn::Module {
  SeparateBlock() : query(8, 8), key(8, 8), value(8, 8), out(8, 8) {
    register_module("query", query);
    register_module("key", key);
    register_module("value", value);
    register_module("out", out);
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto heads = [&](torch::nn::Linear& linear) {
      return linear(x).view({x.size(0), x.size(1), 2, 4}).transpose(1, 2);
    };
    const auto mixed = at::scaled_dot_product_attention(heads(query), heads(key), heads(value), {}, 0.0, true);
    return x + out(mixed.transpose(1, 2).reshape(x.sizes()));
  }
  torch::nn::Linear query, key, value, out;
};

struct SeparateNet : torch::nn::Module {
  SeparateNet() : words(kWords, 8), head(8, kWords) {
    register_module("words", words);
    register_module("blocks", blocks);
    for (int i = 0; i < 2; ++i) blocks->push_back(std::make_shared<SeparateBlock>());
    register_module("head", head);
  }
  at::Tensor forward(const at::Tensor& ids) {
    at::Tensor x = words(ids);
    for (const auto& block : *blocks) x = block->as<SeparateBlock>()->forward(x);
    return head(x);
  }
  torch::nn::Embedding words;
  torch::nn::ModuleList blocks;
  torch::nn::Linear head;
};

// Before any config is read: the names that a config accepts are listed once.
const bool kAdded = [] {
  add_family("separate-keys", family_of_traced("separate-keys", HeadChoice::Kind::causal_lm, [](const nlohmann::json&) {
               return TracedModel{.vocab_size = kWords, .make = [] {
                                    return traced_module(std::make_shared<SeparateNet>(), &SeparateNet::forward);
                                  }};
             }));
  return true;
}();

Config separate_config(int p, int t, int d) {
  Config config = config_of(p, t, d);
  config.model.config = {{"model_type", "separate-keys"}};
  return config;
}

// One rank's part of a run.
struct Job {
  Job(const Config& of_job, const CommunicatorPtr& world)
      : config(of_job),
        planned(plan_model(config, world->size())),
        trainer(
            {config, planned.plan, planned.model, make_rank_groups(planned.plan.layout.mesh(), world, world), at::kCPU},
            4) {
    fill_parameters(config.model, planned.model, 3, trainer.parameters());
  }
  Config config;
  PlannedModel planned;
  RankTrainer trainer;
  RepeatedBatch data{kSamples, kLength, planned.model.spec.vocab_size, 5};
};

// `damage` changes the layout's job before the comparison.
Differences differences_of(const Config& of_ranks, const Config& of_one, int ranks,
                           const std::function<void(Job&)>& damage = {}) {
  Differences differences;
  run_ranks(ranks, [&](const CommunicatorPtr& world) {
    Job layout(of_ranks, world);
    if (damage) damage(layout);
    std::optional<Job> alone;
    if (world->rank() == 0) alone.emplace(of_one, make_local_world());
    const auto one = alone ? std::optional(CheckedRun{alone->trainer, alone->data}) : std::nullopt;
    auto mine = compare_with_one_process({layout.trainer, layout.data}, one ? &*one : nullptr,
                                         layout.planned.model.spec, 2, *world);
    CHECK(mine.empty() == (world->rank() > 0));
    if (world->rank() == 0) differences = std::move(mine);
  });
  return differences;
}

Differences differences_of(int p, int t, int d, const std::function<void(Job&)>& damage = {}) {
  return differences_of(config_of(p, t, d), config_of(1, 1, 1), p * t * d, damage);
}

}  // namespace

TEST_CASE("a program whose heads are split has the gradients, norms, losses and changes of one process") {
  const Differences differences = differences_of(program_config(2), program_config(1), 2);
  CHECK(differences.size() == 4);
  for (const auto& difference : differences) {
    CAPTURE(difference.what, difference.largest, difference.where);
    CHECK(difference.is_within());
  }
}

TEST_CASE("key biases, whose gradient is zero except for rounding, are not reported as a difference with AdamW") {
  for (const auto& [p, t, d] : {std::tuple(2, 1, 1), {1, 2, 1}, {1, 1, 2}}) {
    CAPTURE(p, t, d);
    const auto differences = differences_of(separate_config(p, t, d), separate_config(1, 1, 1), p * t * d);
    REQUIRE(differences.size() == 4);
    for (const auto& difference : differences) {
      CAPTURE(difference.what, difference.largest, difference.where);
      CHECK(difference.is_within());
    }
  }
}

TEST_CASE("a layout has the gradients, norms, losses and changes of one process") {
  for (const auto& [p, t, d] : {std::tuple(1, 1, 1), {2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {2, 2, 1}}) {
    CAPTURE(p, t, d);
    for (const auto& difference : differences_of(p, t, d)) {
      CAPTURE(difference.what, difference.largest, difference.where);
      CHECK(difference.is_within());
    }
  }
}

TEST_CASE("a layout with wrong gradients is reported, with the parameter") {
  const auto differences = differences_of(2, 1, 1, [](Job& job) {
    job.trainer.parameters().fill_values([](Parameter& parameter) {
      if (parameter.name == "h.1.mlp.fc.weight") parameter.value.view(-1)[3] += 1e-6;
    });
  });
  REQUIRE(differences.size() == 4);
  for (const auto& difference : differences) {
    CAPTURE(difference.what, difference.largest, difference.where);
    CHECK(!difference.is_within());
  }
  const auto lost = differences_of(1, 1, 2, [](Job& job) {
    if (job.trainer.parameters().groups().world->rank() == 1)
      job.trainer.parameters().fill_values([](Parameter& parameter) { parameter.value.zero_(); });
  });
  CHECK(!lost[0].is_within());
}

TEST_CASE("a difference that is NaN exceeds its limit") {
  CHECK(!LayoutDifference{.what = "loss", .largest = std::nan(""), .limit = 1}.is_within());
}

}  // namespace shardline::layout_check_test
