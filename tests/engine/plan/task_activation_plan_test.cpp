// The plan's peak of activations is what a rank counts when it trains, for every family and head, on stages and
// tensor-parallel ranks, with frozen parts and packed documents.
#include <array>
#include <cmath>
#include <mutex>
#include <nlohmann/json.hpp>

#include "core/comm/threads_communicator.h"
#include "core/error.h"
#include "engine/commands/parts/job_parts.h"
#include "engine/config/config.h"
#include "engine/train/trainer.h"
#include "tests/case_sample.h"
#include "tests/engine/train/task_source.h"
#include "tests/engine/uneven_gpt2.h"

#include "tests/catch.h"

namespace shardline::task_activation_plan_test {
namespace {

using nlohmann::json;

constexpr int64_t kSamples = 12, kLength = 12, kMicrobatches = 4, kDocuments = 3;

struct Layout {
  int p, t;
  std::string optimize, pipeline;
};

struct Choice {
  std::string family, task;
  Layout on;
  std::string recompute = "none";
  std::vector<std::string> trained = {};
  bool packed = false;
};

json model_of(const Choice& c) {
  constexpr double kDropout = 0.1;
  json config;
  if (c.family == "gpt2")
    config = uneven_gpt2(61, kDropout);
  else if (c.family == "gptj")
    config = uneven_gptj(kDropout);
  else if (c.family == "gpt_neo")
    config = uneven_gpt_neo(kDropout);
  else
    config = c.task == kCausalLm ? uneven_decoder_of(c.family, kDropout) : uneven_encoder(c.family, kDropout);
  if (c.task != kCausalLm && c.task != kMaskedLm) config["num_labels"] = 3;
  return config;
}

Config config_of(const Choice& c) {
  json file = {{"task", c.task},
               {"model", {{"config", model_of(c)}}},
               {"data", {{"train", "unused"}, {"tokenizer", "bytes"}, {"sequence_length", kLength}}},
               {"training", {{"global_batch_size", kSamples}, {"trainable", c.trained}}},
               {"smp_options",
                {{"pipeline_parallel_degree", c.on.p},
                 {"tensor_parallel_degree", c.on.t},
                 {"tensor_parallel_layers", {{{"pattern", "*"}, {"split", true}}}},
                 {"microbatches", kMicrobatches},
                 {"pipeline", c.on.pipeline},
                 {"optimize", c.on.optimize},
                 {"activation_checkpointing", c.recompute}}},
               {"runtime", {{"communicator", c.on.p * c.on.t == 1 ? "local" : "threads"}}},
               {"output_dir", "unused"}};
  if (c.packed) file["data"]["packing"] = "wrapped_reset";
  return parse_config(file.dump(), "activation test of tasks");
}

// Throws unless a rank counts what the plan states for it; packed documents may keep up to 5 % less or more.
void check_planned(const Choice& choice) {
  const Config config = config_of(choice);
  const int ranks = choice.on.p * choice.on.t;
  const auto [source, machines, plan] = plan_model(config, ranks);
  run_ranks(ranks, [&, &source = source, &plan = plan](const CommunicatorPtr& world) {
    RankTrainer trainer({config, plan, source, make_rank_groups(plan.layout.mesh(), world, world), at::kCPU}, 1);
    fill_parameters(config.model, source, 1, trainer.parameters());
    TaskSource data(source.head, {.samples = kSamples,
                                  .together = kSamples / kMicrobatches,
                                  .length = kLength,
                                  .documents = choice.packed ? kDocuments : 1});
    trainer.accumulate_gradients(data, 1);
    const auto counted = static_cast<double>(trainer.last_step().peak_activation_bytes);
    const auto told = static_cast<double>(plan.activation_bytes_by_rank[static_cast<size_t>(world->rank())].kept);
    if (std::abs(counted - told) > (choice.packed ? 0.05 : 0) * told)
      throw RunError(cat("rank ", world->rank(), " counted ", counted, " bytes, planned ", told));
  });
}

bool has_head(const std::string& family, const std::string& task) {
  const bool is_gpt = family.starts_with("gpt");
  if (task == kCausalLm) return family != "distilbert";
  if (task == kMaskedLm) return !is_gpt;
  return family != "gptj" || task != kTokenClassification;
}

}  // namespace

TEST_CASE("the plan's peak of activations equals what every rank counts for every family and head") {
  const std::array<Layout, 5> layouts = {{{1, 1, "speed", "simple"},
                                          {2, 1, "speed", "interleaved"},
                                          {1, 2, "memory", "simple"},
                                          {2, 2, "memory", "interleaved"},
                                          {2, 2, "speed", "zb_h1"}}};
  CaseSample sample(11);
  for (const char* family : {"bert", "roberta", "xlm-roberta", "distilbert", "gpt2", "gptj", "gpt_neo"})
    for (const char* task : {kCausalLm, kMaskedLm, kSequenceClassification, kTokenClassification, kQuestionAnswering}) {
      if (!has_head(family, task)) continue;
      std::vector<Choice> choices;
      for (const Layout& on : layouts) {
        for (const char* recompute : {"none", "selective", "each"})
          choices.push_back({.family = family, .task = task, .on = on, .recompute = recompute});
        for (const std::vector<std::string>& trained : {std::vector<std::string>{"head.*"}, {"h.[45].*", "head.*"}})
          choices.push_back({.family = family, .task = task, .on = on, .trained = trained});
        if (std::string(task) == kCausalLm)
          choices.push_back({.family = family, .task = task, .on = on, .packed = true});
      }
      for (const Choice& c : choices) {
        if (!sample.takes_next()) continue;
        CAPTURE(c.family, c.task, c.on.p, c.on.t, c.on.optimize, c.on.pipeline, c.recompute, c.trained, c.packed);
        CHECK_NOTHROW(check_planned(c));
      }
    }
}

}  // namespace shardline::task_activation_plan_test
