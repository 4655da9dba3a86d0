// The schedule of a plan, saved to a file, is the schedule of every run that reads the file, whatever that run shards.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/comm/threads_communicator.h"
#include "engine/commands/parts/job_parts.h"
#include "engine/config/config.h"
#include "engine/data/dataset/repeated_batch.h"
#include "engine/train/trainer.h"
#include "pipeline/schedule/kinds/schedule_choice.h"
#include "tests/case_sample.h"
#include "tests/engine/uneven_gpt2.h"

#include "tests/catch.h"

namespace shardline::saved_schedule_test {
namespace {

constexpr int64_t kSamples = 12, kLength = 9, kWords = 61;
constexpr int kStages = 2, kReplicas = 2, kRanks = kStages * kReplicas;

const std::map<std::string, nlohmann::json> kShardings = {
    {"none", nlohmann::json::object()},
    {"ZeRO-1", {{"shard_optimizer_state", true}}},
    {"ZeRO-2", {{"shard_optimizer_state", true}, {"shard_gradients", true}}},
    {"ZeRO-3", {{"sharded_data_parallel_degree", kReplicas}}}};

// pipeline: a name or a file.
Config config_of(const std::string& pipeline, const std::string& sharding) {
  nlohmann::json file = {{"model", {{"config", uneven_gpt2(kWords, 0)}}},
                         {"data", {{"train", "unused"}, {"tokenizer", "bytes"}, {"sequence_length", kLength}}},
                         {"training", {{"global_batch_size", kSamples}}},
                         {"smp_options", kShardings.at(sharding)},
                         {"runtime", {{"communicator", "threads"}, {"device", "cpu"}}},
                         {"output_dir", "unused"}};
  file["smp_options"]["pipeline_parallel_degree"] = kStages;
  file["smp_options"]["microbatches"] = 3;
  file["smp_options"]["pipeline"] = pipeline;
  if (pipeline == "interleaved_1f1b") file["smp_options"]["virtual_pipeline_degree"] = 2;
  return parse_config(file.dump(), "saved schedule test");
}

Plan plan_of(const std::string& pipeline, const std::string& sharding) {
  return plan_model(config_of(pipeline, sharding), kRanks).plan;
}

// What `shardline plan --json --instructions` shows as `schedule`.
std::string saved(const Plan& plan) {
  const auto path = std::filesystem::temp_directory_path() / "shardline-saved-schedule.json";
  std::ofstream(path) << plan_json(plan)["schedule"];
  return path.string();
}

std::vector<double> losses(const std::string& pipeline, const std::string& sharding) {
  const Config config = config_of(pipeline, sharding);
  std::vector<double> losses;
  run_ranks(kRanks, [&](const CommunicatorPtr& world) {
    const auto [source, machines, plan] = plan_model(config, kRanks);
    RankTrainer trainer({config, plan, source, make_rank_groups(plan.layout.mesh(), world, world), at::kCPU}, 3);
    fill_parameters(config.model, source, 1, trainer.parameters());
    RepeatedBatch data(kSamples, kLength, kWords, 5);
    for (int step = 1; step <= 3; ++step) {
      const double loss = trainer.train_step(data, step).loss;
      if (world->rank() == 0) losses.push_back(loss);
    }
  });
  return losses;
}

}  // namespace

TEST_CASE("a saved schedule has the instructions of the named one, for any sharding of the run that saved it") {
  for (const auto& name : schedule_names())
    for (const auto& [written, ignored] : kShardings) {
      const auto file = saved(plan_of(name, written));
      for (const auto& [read, unused] : kShardings) {
        CAPTURE(name, written, read);
        const Plan own = plan_of(name, read), other = plan_of(file, read);
        CHECK(other.train.instructions == own.train.instructions);
        CHECK(other.train.stage_of_chunk == own.train.stage_of_chunk);
        CHECK(other.activation_bytes_by_rank == own.activation_bytes_by_rank);
      }
    }
}

TEST_CASE("training from a saved schedule gives the losses of the named one") {
  CaseSample sample(3);
  for (const auto& name : schedule_names())
    for (const auto& [sharding, ignored] : kShardings) {
      if (!sample.takes_next()) continue;
      CAPTURE(name, sharding);
      const auto file = saved(plan_of(name, sharding));
      const auto own = losses(name, sharding);
      REQUIRE(own.size() == 3);
      CHECK(own.back() < own.front());
      CHECK(losses(file, sharding) == own);
    }
}

}  // namespace shardline::saved_schedule_test
