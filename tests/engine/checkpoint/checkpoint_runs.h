// Small runs whose ranks save and read checkpoints.
#pragma once
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "core/comm/threads_communicator.h"
#include "core/error.h"
#include "engine/checkpoint/checkpoint_reader.h"
#include "engine/checkpoint/checkpoint_saver.h"
#include "engine/config/config.h"
#include "engine/config/rules/optimizer_rules.h"
#include "engine/data/dataset/repeated_batch.h"
#include "engine/run/model_source.h"
#include "engine/train/trainer.h"
#include "models/files/safetensors.h"
#include "tests/engine/uneven_gpt2.h"
#include "tests/models/files/files.h"

#include "tests/catch.h"

namespace shardline::checkpoint_runs {

using nlohmann::json;
namespace fs = std::filesystem;

// The settings that all ranks of a run share.
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
    const HfDirectory directory(checkpoint);
    directory.check_names(model.spec);
    read_parameters(directory, trainer.parameters());
    read_optimizer_state(checkpoint, trainer.parameters(), trainer.optimizer(), *options(), model.spec);
  }

  std::unique_ptr<CheckpointSaver> saver(const std::string& directory, int64_t keep = 0, bool on_each_store = false) {
    return saver(directory, find_stores(directory, *groups.world), keep, on_each_store);
  }

  std::unique_ptr<CheckpointSaver> saver(const std::string& directory, Stores stores, int64_t keep = 0,
                                         bool on_each_store = false) {
    return std::make_unique<CheckpointSaver>(CheckpointSaverParts{.directory = directory,
                                                                  .stores = std::move(stores),
                                                                  .on_each_store = on_each_store,
                                                                  .spec = model.spec,
                                                                  .parameters = trainer.parameters(),
                                                                  .optimizer = &trainer.optimizer(),
                                                                  .optimizer_options = options(),
                                                                  .buffers = buffers_of(model),
                                                                  .files = {{"config.json", model.hf_config.dump()}},
                                                                  .keep = keep,
                                                                  // Most tensors span several blocks, and most ranks
                                                                  // write several blocks.
                                                                  .block_bytes = 4096});
  }

  void save(const std::string& directory, int64_t step, int64_t keep = 0, int64_t best = -1) {
    const auto saver = this->saver(directory, keep);
    saver->start(step, {}, best);
    saver->finish();
    if (groups.rank == 0) CHECK(saver->take_failure() == "");
  }

  Config config;
  PlannedModel planned;
  const ModelSource& model = planned.model;
  RankGroups groups;
  RankTrainer trainer;
};

// Saves a checkpoint after two steps of one process.
inline void train_and_save(const Job& job, const std::string& directory) {
  run_ranks(1, [&](CommunicatorPtr world) {
    Run run(job, {}, world);
    fill_parameters(run.config.model, run.model, 7, run.trainer.parameters());
    RepeatedBatch data(8, 8, 61, 5);
    for (int step = 1; step <= 2; ++step) run.trainer.train_step(data, step);
    run.save(directory, 2);
  });
}

// Names the files of two checkpoints that differ, and tensors whose bytes differ.
inline std::string differences(const fs::path& one, const fs::path& other) {
  std::string text;
  for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {
    if (contents(one / name) == contents(other / name)) continue;
    const SafetensorsFile a(one / name), b(other / name);
    text += cat(name, a.header() == b.header() ? "" : " (header)", ": ");
    for (const auto& [tensor, entry] : a.tensors())
      if (!b.tensors().contains(tensor) || a.bytes_of(tensor) != b.bytes_of(tensor)) text += tensor + " ";
  }
  return text;
}

inline const std::vector<Grid> kGrids = {
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

}  // namespace shardline::checkpoint_runs
