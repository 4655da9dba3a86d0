// Workspace of layers while they run, in addition to what is kept: the plan compared with the allocator.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/comm/local_communicator.h"
#include "core/memory/caching_allocator.h"
#include "engine/config/config.h"
#include "engine/train/trainer.h"
#include "tests/case_sample.h"
#include "tests/engine/train/ones_source.h"

#include "tests/catch.h"

namespace shardline::activation_peak_test {
namespace {

constexpr int64_t kLength = 64;

struct Choice {
  std::string model = "gpt2", recompute = "none", offload = "no", pipeline = "simple";
  double dropout = 0;
  int microbatches = 4, samples = 6;  // samples in a microbatch
  int inner = 512, vocabulary = 500;
  std::vector<std::string> trained;  // patterns; empty: all
};

Config config_of(const Choice& c) {
  nlohmann::json file = {{"model",
                          {{"config",
                            {{"model_type", c.model},
                             {"n_layer", 3},
                             {"n_head", 4},
                             {"n_embd", 128},
                             {"n_inner", c.inner},
                             {"n_positions", kLength},
                             {"vocab_size", c.vocabulary},
                             {"resid_pdrop", c.dropout},
                             {"embd_pdrop", c.dropout},
                             {"attn_pdrop", c.dropout}}}}},
                         {"data", {{"train", "unused"}, {"tokenizer", "bytes"}, {"sequence_length", kLength}}},
                         {"training", {{"global_batch_size", c.samples * c.microbatches}, {"trainable", c.trained}}},
                         {"smp_options",
                          {{"microbatches", c.microbatches},
                           {"pipeline", c.pipeline},
                           {"activation_checkpointing", c.recompute},
                           {"offload_activations", c.offload != "no"},
                           {"offload_scope", c.offload == "no" ? "checkpointed" : c.offload},
                           {"offload_path", std::filesystem::temp_directory_path().string()}}},
                         {"runtime", {{"communicator", "local"}}},
                         {"output_dir", "unused"}};
  if (c.model == "gptj") file["model"]["config"]["rotary_dim"] = 16;
  return parse_config(file.dump(), "activation peak test");
}

// Measured over planned bytes.
double measured_over_planned(const Choice& choice) {
  const Config config = config_of(choice);
  const CommunicatorPtr world = make_local_world();
  const auto [source, machines, plan] = plan_model(config, 1);
  RankTrainer trainer({config, plan, source, make_rank_groups(plan.layout.mesh(), world, world), at::kCPU}, 1);
  fill_parameters(config.model, source, 1, trainer.parameters());
  OnesSource data(choice.samples * choice.microbatches, kLength);
  restart_memory_peaks();
  trainer.accumulate_gradients(data, 1);
  const auto measured = memory_totals().peak_of_class[static_cast<size_t>(MemoryClass::activations)];
  return static_cast<double>(measured) / static_cast<double>(plan.activation_bytes_by_rank[0].in_use);
}

}  // namespace

TEST_CASE("the plan's peak of activations in use equals what the allocator counts") {
  use_caching_allocator();
  CaseSample sample(3);
  for (const char* recompute : {"none", "selective", "each", "group_2"})
    for (const char* offload : {"no", "all"})
      for (const char* pipeline : {"simple", "zb_h2"})
        for (const double dropout : {0.0, 0.1})
          for (const int inner : {128, 512})
            for (const int microbatches : {1, 4}) {
              if (!sample.takes_next()) continue;
              const Choice choice{.recompute = recompute,
                                  .offload = offload,
                                  .pipeline = pipeline,
                                  .dropout = dropout,
                                  .microbatches = microbatches,
                                  .inner = inner};
              CAPTURE(recompute, offload, pipeline, dropout, inner, microbatches);
              CHECK(measured_over_planned(choice) == Approx(1).margin(0.01));
            }
}

TEST_CASE("the plan's peak of activations in use equals what the allocator counts if some parameters are frozen") {
  use_caching_allocator();
  CaseSample sample(5);
  using Patterns = std::vector<std::string>;
  for (const auto& trained : {Patterns{"head.ln_f.*"}, {"h.1.mlp.*"}, {"h.2.attn.*"}, {"*bias"}})
    for (const char* recompute : {"none", "selective", "each"})
      for (const char* pipeline : {"simple", "zb_h2"})
        for (const int microbatches : {1, 4}) {
          if (!sample.takes_next()) continue;
          CAPTURE(trained, recompute, pipeline, microbatches);
          CHECK(
              measured_over_planned({.recompute = recompute,
                                     .pipeline = pipeline,
                                     .dropout = 0.1,
                                     .microbatches = microbatches,
                                     .samples = 24,  // enough for the partial sums of kernels to be less than 1% of it
                                     .trained = trained}) == Approx(1).margin(0.01));
        }
}

TEST_CASE("the plan's peak of activations in use equals what the allocator counts for GPT-J") {
  use_caching_allocator();
  for (const char* recompute : {"none", "selective", "each"})
    for (const char* pipeline : {"simple", "zb_h2"})
      for (const int inner : {128, 512}) {
        CAPTURE(recompute, pipeline, inner);
        CHECK(measured_over_planned({.model = "gptj",
                                     .recompute = recompute,
                                     .pipeline = pipeline,
                                     .dropout = inner == 128 ? 0.1 : 0.0,
                                     .microbatches = inner == 128 ? 4 : 1,
                                     .inner = inner}) == Approx(1).margin(0.01));
      }
  // Cases in which the head dominates: its logits, and the sums of its bias's gradient.
  CHECK(measured_over_planned(
            {.model = "gptj", .recompute = "each", .microbatches = 1, .inner = 128, .vocabulary = 5000}) ==
        Approx(1).margin(0.01));
}

}  // namespace shardline::activation_peak_test
