// The plan's peak of kept layer inputs is what a rank counts when it trains.
#include <ATen/ops/full.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/threads_communicator.h"
#include "engine/config/config.h"
#include "engine/trainer.h"

#include "tests/catch.h"

using namespace shardline;

namespace {

constexpr int64_t kSamples = 12, kLength = 9;

class OnesSource : public BatchSource {
 public:
  int64_t samples_in_step(int64_t) const override { return kSamples; }
  Batch batch(int64_t, const BatchSlice& slice) override {
    const auto ids = at::full({slice.count, kLength}, 1, at::kLong);
    return {.ids = ids,
            .labels = ids,
            .first_sample = slice.first,
            .global_samples = kSamples,
            .weight = kSamples * (kLength - 1)};
  }
};

Config config_of(const std::string& pipeline, const nlohmann::json& recompute, bool offload, int p, int t) {
  const nlohmann::json file = {{"model",
                                {{"config",
                                  {{"model_type", "gpt2"},
                                   {"n_layer", 6},
                                   {"n_head", 4},
                                   {"n_embd", 32},
                                   {"vocab_size", 61},
                                   {"n_positions", 16}}}}},
                               {"data", {{"train", "unused"}, {"tokenizer", "bytes"}, {"sequence_length", kLength}}},
                               {"training", {{"global_batch_size", kSamples}}},
                               {"smp_options",
                                {{"pipeline_parallel_degree", p},
                                 {"tensor_parallel_degree", t},
                                 {"microbatches", 6},
                                 {"pipeline", pipeline},
                                 {"activation_checkpointing", recompute},
                                 {"offload_activations", offload},
                                 {"activation_loading_horizon", 2},
                                 {"offload_path", std::filesystem::temp_directory_path().string()}}},
                               {"runtime", {{"communicator", p * t == 1 ? "local" : "threads"}}},
                               {"output_dir", "unused"}};
  return parse_config(file.dump(), "activation test");
}

// Largest over the ranks; every rank must count what the plan says of it.
int64_t planned_and_counted(const Config& config, int world_size) {
  int64_t most = 0;
  run_ranks(world_size, [&](CommunicatorPtr world) {
    const ModelSource source = open_model(config.model, config.smp.tensor_parallel_degree > 1);
    const Plan plan = make_plan(config, source.spec, world->size());
    Trainer trainer({config, plan, source, make_rank_groups(plan.mesh, world, world), at::kCPU}, 1);
    fill_parameters(config.model, source, 1, trainer.parameters());
    OnesSource data;
    trainer.accumulate_gradients(data, 1);
    const auto rank = static_cast<size_t>(world->rank());
    const int64_t counted = trainer.last_run().peak_activation_bytes;
    if (counted != plan.activation_bytes_by_rank[rank])
      throw RunError(cat("rank ", rank, " counted ", counted, " bytes, planned ", plan.activation_bytes_by_rank[rank]));
    if (world->rank() == 0) most = counted;  // the first stage keeps most microbatches
  });
  return most;
}

}  // namespace

TEST_CASE("the plan's peak of kept layer inputs is what every rank counts") {
  for (const auto& [p, t] : {std::pair{1, 1}, {2, 1}, {3, 1}, {2, 2}})
    for (const char* pipeline : {"simple", "interleaved"})
      for (const char* recompute : {"none", "selective", "each", "group_2", "contiguous"})
        for (const bool offload : {false, true}) {
          CAPTURE(p, t, pipeline, recompute, offload);
          CHECK_NOTHROW(planned_and_counted(config_of(pipeline, recompute, offload, p, t), p * t));
        }
}

TEST_CASE("wider groups keep less, and what is away is not kept") {
  const auto peak = [](const nlohmann::json& recompute, bool offload) {
    return planned_and_counted(config_of("simple", recompute, offload, 1, 1), 1);
  };
  const int64_t border = kSamples / 6 * kLength * 32 * 4;
  CHECK(peak("none", false) == 6 * 7 * border);  // six blocks and the head
  CHECK(peak("each", false) == 6 * 7 * border);
  CHECK(peak("group_2", false) == 6 * 4 * border);
  CHECK(peak("contiguous", false) == (6 * 2 + 4) * border);  // five inputs come back, the head's has gone
  CHECK(peak("contiguous", true) < peak("contiguous", false));
  CHECK(peak({{{"layers", "h.[0-2]"}, {"strategy", "contiguous"}}}, false) == 6 * 5 * border);
}
