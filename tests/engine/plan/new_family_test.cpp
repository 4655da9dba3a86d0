// A family that states nothing about bytes and work (tests/models/families/post_norm_family.h): its plan equals the
// counts of a real step. tests/mpi/memory_mpi.cpp does the same on two real ranks.
#include <nlohmann/json.hpp>

#include "core/comm/threads_communicator.h"
#include "core/error.h"
#include "core/memory/caching_allocator.h"
#include "engine/commands/parts/job_parts.h"
#include "engine/config/config.h"
#include "engine/train/trainer.h"
#include "tests/case_sample.h"
#include "tests/engine/train/ones_source.h"
#include "tests/models/families/post_norm_family.h"

#include "tests/catch.h"

namespace shardline::new_family_test {

namespace {

constexpr int64_t kSamples = 12, kLength = 64;

struct Choice {
  int t = 1;
  std::string optimize = "memory", pipeline = "simple", recompute = "none";
  double dropout = 0;
  int frozen = 0;
};

Config config_of(const Choice& c) {
  nlohmann::json file = {{"model",
                          {{"config",
                            {{"model_type", "post_norm"},
                             {"n_layer", 3},
                             {"n_head", 4},
                             {"n_embd", 128},
                             {"n_positions", kLength},
                             {"vocab_size", 500},
                             {"resid_pdrop", c.dropout},
                             {"embd_pdrop", c.dropout},
                             {"attn_pdrop", c.dropout}}}}},
                         {"data", {{"train", "unused"}, {"tokenizer", "bytes"}, {"sequence_length", kLength}}},
                         {"training", {{"global_batch_size", kSamples}}},
                         {"smp_options",
                          {{"tensor_parallel_degree", c.t},
                           {"microbatches", 3},
                           {"pipeline", c.pipeline},
                           {"optimize", c.optimize},
                           {"activation_checkpointing", c.recompute}}},
                         {"runtime", {{"communicator", c.t == 1 ? "local" : "threads"}}},
                         {"output_dir", "unused"}};
  file["smp_options"]["tensor_parallel_layers"] = {{{"pattern", "*"}, {"split", true}}};
  if (c.frozen > 0) file["model"]["config"]["frozen_blocks"] = c.frozen;
  return parse_config(file.dump(), "new family test");
}

// Each rank's kept bytes must be those of its plan. With one rank, returns the allocator's bytes over the plan's at the
// step's peak.
double counted_over_planned(const Choice& choice) {
  const Config config = config_of(choice);
  double ratio = 0;
  run_ranks(choice.t, [&](CommunicatorPtr world) {
    const auto [source, machines, plan] = plan_model(config, world->size());
    RankTrainer trainer({config, plan, source, make_rank_groups(plan.layout.mesh(), world, world), at::kCPU}, 1);
    fill_parameters(config.model, source, 1, trainer.parameters());
    OnesSource data(kSamples, kLength);
    if (choice.t == 1) restart_memory_peaks();
    trainer.accumulate_gradients(data, 1);
    const auto& expected = plan.activation_bytes_by_rank[static_cast<size_t>(world->rank())];
    const int64_t counted = trainer.last_step().peak_activation_bytes;
    if (counted != expected.kept)
      throw RunError(cat("rank ", world->rank(), " counted ", counted, " bytes, planned ", expected.kept));
    const auto used = memory_totals().peak_of_class[static_cast<size_t>(MemoryClass::activations)];
    if (choice.t == 1) ratio = static_cast<double>(used) / static_cast<double>(expected.in_use);
  });
  return ratio;
}

}  // namespace

TEST_CASE("the plan of a new family equals what ranks count") {
  register_post_norm_family();
  use_caching_allocator();
  CaseSample sample(5);
  for (const char* pipeline : {"simple", "zb_h2"})
    for (const char* recompute : {"none", "selective", "each"})
      for (const double dropout : {0.0, 0.1})
        for (const int frozen : {0, 1}) {
          if (!sample.takes_next()) continue;
          CAPTURE(pipeline, recompute, dropout, frozen);
          Choice choice{.pipeline = pipeline, .recompute = recompute, .dropout = dropout, .frozen = frozen};
          CHECK(counted_over_planned(choice) == Approx(1).margin(0.01));
          for (const char* optimize : {"memory", "speed"}) {
            choice.t = 2, choice.optimize = optimize;
            CHECK_NOTHROW(counted_over_planned(choice));
          }
        }
}

}  // namespace shardline::new_family_test
