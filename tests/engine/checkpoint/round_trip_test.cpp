// A checkpoint has no layout: read on any grid and saved again, its files have the same bytes.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "core/comm/threads_communicator.h"
#include "core/error.h"
#include "engine/checkpoint/checkpoint_reader.h"
#include "engine/checkpoint/checkpoint_saver.h"
#include "engine/checkpoint/manifest.h"
#include "engine/config/config.h"
#include "engine/config/rules/optimizer_rules.h"
#include "engine/data/dataset/repeated_batch.h"
#include "engine/run/model_source.h"
#include "engine/train/trainer.h"
#include "models/files/safetensors.h"
#include "tests/engine/uneven_gpt2.h"
#include "tests/models/files/files.h"

#include "tests/catch.h"

namespace shardline::round_trip_test {

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

// What all ranks of a run agree on.
struct Job {
  json model = uneven_gpt2();
  json training = json::object();
  json runtime = json::object();
};

struct Grid {
  int ranks = 1;
  json smp = json::object();
};

// One rank.
struct Run {
  Run(const Job& job, const Grid& grid, const CommunicatorPtr& world)
      : config(parse_config(file(job, grid).dump(), "round trip")),
        planned(plan_model(config, grid.ranks)),
        groups(make_rank_groups(planned.plan.layout.mesh(), world, world)),
        trainer({config, planned.plan, model, groups, at::kCPU}, 10) {}

  static json file(const Job& job, const Grid& grid) {
    json training = {{"global_batch_size", 8}, {"use_cpu", true}};
    training.merge_patch(job.training);
    json runtime = {{"communicator", "threads"}};
    runtime.merge_patch(job.runtime);
    return {{"model", {{"config", job.model}}},
            {"data", {{"train", "unused"}, {"tokenizer", "bytes"}, {"sequence_length", 8}}},
            {"training", training},
            {"smp_options", grid.smp},
            {"mpi_options", {{"processes_per_host", grid.ranks}}},
            {"runtime", runtime},
            {"output_dir", "unused"}};
  }

  std::optional<OptimizerOptions> options() const { return optimizer_options(config.training); }

  void read(const std::string& checkpoint) {
    const HfDirectory directory(checkpoint, "");
    directory.check_names(model.spec);
    read_parameters(directory, trainer.parameters());
    read_optimizer_state(checkpoint, trainer.parameters(), trainer.optimizer(), *options(), model.spec);
  }

  std::unique_ptr<CheckpointSaver> saver(const std::string& directory) {
    return std::make_unique<CheckpointSaver>(CheckpointSaverParts{.directory = directory,
                                                                  .spec = model.spec,
                                                                  .parameters = trainer.parameters(),
                                                                  .optimizer = &trainer.optimizer(),
                                                                  .optimizer_options = options(),
                                                                  .files = {{"config.json", model.hf_config.dump()}},
                                                                  // Most tensors are in several blocks, and most ranks
                                                                  // write several.
                                                                  .block_bytes = 4096});
  }

  void save(const std::string& directory, int64_t step) {
    const auto saver = this->saver(directory);
    saver->start(step, {});
    saver->finish();
    if (groups.rank == 0) CHECK(saver->take_failure() == "");
  }

  Config config;
  PlannedModel planned;
  const ModelSource& model = planned.model;
  RankGroups groups;
  Trainer trainer;
};

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A checkpoint after two steps of one process.
void train_and_save(const Job& job, const std::string& directory) {
  run_ranks(1, [&](CommunicatorPtr world) {
    Run run(job, {}, world);
    fill_parameters(run.config.model, run.model, 7, run.trainer.parameters());
    RepeatedBatch data(8, 8, 61, 5);
    for (int step = 1; step <= 2; ++step) run.trainer.train_step(data, step);
    run.save(directory, 2);
  });
}

// Different files of two checkpoints, and tensors whose bytes differ.
std::string differences(const fs::path& one, const fs::path& other) {
  std::string text;
  for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {
    if (bytes_of(one / name) == bytes_of(other / name)) continue;
    const SafetensorsFile a(one / name), b(other / name);
    text += cat(name, a.header() == b.header() ? "" : " (header)", ": ");
    for (const auto& [tensor, entry] : a.tensors())
      if (!b.tensors().contains(tensor) || a.bytes_of(tensor) != b.bytes_of(tensor)) text += tensor + " ";
  }
  return text;
}

const std::vector<Grid> kGrids = {
    {1, json::object()},
    {2, {{"pipeline_parallel_degree", 2}}},
    {3, {{"pipeline_parallel_degree", 3}}},
    {2, {{"tensor_parallel_degree", 2}}},
    {3, {{"tensor_parallel_degree", 3}, {"optimize", "speed"}}},
    {2, json::object()},
    {2, {{"shard_optimizer_state", true}}},
    {2, {{"shard_optimizer_state", true}, {"shard_gradients", true}}},
    {4, {{"sharded_data_parallel_degree", 4}, {"sdp_param_persistence_threshold", 0}}},
    {4, {{"sharded_data_parallel_degree", 2}, {"sdp_param_persistence_threshold", 100}}},
    {8,
     {{"pipeline_parallel_degree", 2},
      {"tensor_parallel_degree", 2},
      {"sharded_data_parallel_degree", 2},
      {"sdp_param_persistence_threshold", 0},
      {"placement_strategy", "TPD"}}},
    {6,
     {{"tensor_parallel_degree", 3},
      {"shard_optimizer_state", true},
      {"optimize", "memory"},
      {"placement_strategy", "PDT"}}},
    {4,
     {{"pipeline_parallel_degree", 2},
      {"virtual_pipeline_degree", 2},
      {"pipeline", "interleaved_1f1b"},
      {"microbatches", 2},
      {"shard_optimizer_state", true}}},
};

void check_all_grids(const Job& job) {
  const ScratchDirectory scratch;
  train_and_save(job, scratch.path());
  const fs::path base = scratch / "checkpoint-2";
  int64_t step = 100;
  for (const auto& grid : kGrids) {
    CAPTURE(grid.ranks, grid.smp.dump());
    ++step;
    run_ranks(grid.ranks, [&](CommunicatorPtr world) {
      Run run(job, grid, world);
      run.read(base);
      run.save(scratch.path(), step);
    });
    const fs::path again = scratch / checkpoint_name(step);
    CHECK(differences(base, again) == "");
    CHECK(find_damage(again, read_manifest(again)).empty());
  }
}

}  // namespace

TEST_CASE("a checkpoint that any grid reads and saves again keeps its bytes") {
  check_all_grids({});
}

TEST_CASE("the same with other optimizers, models and precisions") {
  check_all_grids({.training = {{"optim", "sgd"}, {"optim_args", "momentum=0.9"}}});
  check_all_grids({.training = {{"optim", "adafactor"}}});
  check_all_grids({.runtime = {{"dtype", "float64"}}});
  check_all_grids({.training = {{"bf16", true}}});
  check_all_grids({.model = uneven_gptj()});
  const json untied = uneven_gpt2(61, 0.1, /*tied=*/false);
  check_all_grids({.model = untied, .training = {{"optim", "adafactor"}}});
}

}  // namespace shardline::round_trip_test
