// A run that stops and continues is one run: the same steps, numbers and files, on the same layout or another one.
#include "engine/commands/run_checkpoints.h"

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/checkpoint/checkpoint_directory.h"
#include "engine/commands/run_checks.h"
#include "models/files/safetensors.h"
#include "tests/engine/data/temp_folder.h"
#include "tests/engine/tiny_run.h"

#include "tests/catch.h"

namespace shardline::run_checkpoints_test {

using Catch::Contains;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

constexpr int kSteps = 20, kStop = 13;  // an epoch has 16, the last one of which is short

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The bytes of all files below a directory, by path. Flight records are those of the process.
std::map<std::string, std::string> files_in(const fs::path& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory))
    if (entry.is_regular_file() && !entry.path().string().ends_with("flight/rank-0"))
      files[fs::relative(entry.path(), directory)] = bytes_of(entry.path());
  return files;
}

std::vector<json> metrics_of(const std::string& directory) {
  std::vector<json> lines;
  std::ifstream file(directory + "/metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    json record = json::parse(line);
    for (const char* timed : {"step_seconds", "tokens_per_second", "samples_per_second", "bubble_fraction",
                              "exposed_communication_fraction", "peak_memory_bytes"})
      record.erase(timed);
    lines.push_back(record);
  }
  return lines;
}

// Dropout, shuffled samples, a short batch at the end of the epoch, a checkpoint in its middle.
json long_run(const RunFolder& folder, const std::string& output, const json& changes = json::object()) {
  json file = tiny_run(folder, {{"model", {{"config", {{"attn_pdrop", 0.1}, {"n_embd", 24}, {"n_head", 6}}}}},
                                {"training",
                                 {{"max_steps", kSteps},
                                  {"global_batch_size", 8},
                                  {"learning_rate", 1e-3},
                                  {"save_steps", kStop},
                                  {"logging_steps", 4},
                                  {"report_to", "tensorboard"},
                                  {"warmup_steps", 3}}},
                                {"output_dir", folder / output}});
  file.merge_patch(changes);
  return file;
}

std::string train(const json& file) {
  return train_in_process(parse_config(file.dump(), "run.json"));
}

json grid(int ranks, const json& smp) {
  return {{"smp_options", smp}, {"mpi_options", {{"processes_per_host", ranks}}}};
}

json resumed(json file, const std::string& checkpoint, const std::string& output) {
  file["training"]["resume_from_checkpoint"] = checkpoint;
  file["output_dir"] = output;
  return file;
}

// The largest difference of a tensor of two models over the largest value.
double largest_difference(const std::string& one, const std::string& other) {
  const SafetensorsFile a(one), b(other);
  double largest = 0;
  for (const auto& [name, entry] : a.tensors()) {
    const at::Tensor x = a.tensor(name).to(at::kDouble), y = b.tensor(name).to(at::kDouble);
    largest = std::max(largest, ((x - y).abs().max() / x.abs().max()).item<double>());
  }
  return largest;
}

}  // namespace

TEST_CASE("a run that continues on the same layout has the bits of one that was never stopped") {
  const RunFolder folder("resume-equal");
  const json variants = {
      {{"name", "one process"}},
      {{"name", "fp16"},
       {"training", {{"fp16", true}, {"dynamic_loss_args", {{"init_scale", 65536}, {"scale_window", 3}}}}}},
      {{"name", "bf16"}, {"training", {{"bf16", true}}}},
      {{"name", "adafactor"}, {"training", {{"optim", "adafactor"}}}},
      {{"name", "sgd"}, {"training", {{"optim", "sgd"}, {"optim_args", "momentum=0.9"}}}},
      {{"name", "P T D"},
       {"smp_options",
        {{"pipeline_parallel_degree", 2},
         {"tensor_parallel_degree", 2},
         {"microbatches", 2},
         {"shard_optimizer_state", true}}},
       {"mpi_options", {{"processes_per_host", 8}}}},
      {{"name", "ZeRO-3"},
       {"smp_options", {{"sharded_data_parallel_degree", 2}, {"sdp_param_persistence_threshold", 0}}},
       {"mpi_options", {{"processes_per_host", 2}}}},
      {{"name", "accumulation"},
       {"training",
        {{"global_batch_size", nullptr}, {"per_device_train_batch_size", 2}, {"gradient_accumulation_steps", 4}}}}};
  for (json variant : variants) {
    const std::string name = variant["name"];
    CAPTURE(name);
    variant.erase("name");
    const json whole = long_run(folder, name, variant);
    train(whole);
    const std::string stopped = folder / name + "/" + checkpoint_name(kStop);
    const std::string again = folder / name + " resumed";
    CHECK_THAT(train(resumed(whole, stopped, again)), Contains(cat("after step ", kStop)));
    CHECK(bytes_of(again + "/model.safetensors") == bytes_of(folder / name + "/model.safetensors"));
    const fs::path last = checkpoint_name(kSteps);
    CHECK(bytes_of(again / last / "optimizer.safetensors") == bytes_of(folder / name / last / "optimizer.safetensors"));
    const auto all = metrics_of(folder / name);
    const auto rest = metrics_of(again);
    REQUIRE(rest.size() == kSteps - kStop);
    CHECK(std::equal(rest.begin(), rest.end(), all.begin() + kStop));
    const json state = json::parse(bytes_of(again / last / "trainer_state.json"));
    CHECK(state == json::parse(bytes_of(folder / name / last / "trainer_state.json")));
    CHECK(state["global_step"] == kSteps);
    CHECK(state["log_history"].size() == kSteps / 4);
  }
}

TEST_CASE("a run that continues on another layout keeps its curve") {
  const RunFolder folder("resume-layouts");
  const std::vector<json> grids = {
      grid(1, json::object()),
      grid(2, {{"pipeline_parallel_degree", 2}, {"microbatches", 2}}),
      grid(2, {{"tensor_parallel_degree", 2}}),
      grid(4, {{"shard_optimizer_state", true}}),
      grid(
          4,
          {{"sharded_data_parallel_degree", 2}, {"tensor_parallel_degree", 2}, {"sdp_param_persistence_threshold", 0}}),
      grid(4, {{"pipeline_parallel_degree", 2}, {"activation_checkpointing", "each"}, {"microbatches", 2}})};
  const json exact = {{"runtime", {{"dtype", "float64"}}}};
  json file = long_run(folder, "whole", exact);
  train(file);
  const auto whole = metrics_of(folder / "whole");
  for (size_t i = 0; i < grids.size(); ++i) {
    const std::string from = folder / cat("from ", i);
    file = long_run(folder, cat("from ", i), exact);
    file.merge_patch(grids[i]);
    train(file);
    for (size_t j = 0; j < grids.size(); ++j) {
      CAPTURE(grids[i].dump(), grids[j].dump());
      const std::string to = folder / "to";
      fs::remove_all(to);
      file = long_run(folder, "to", exact);
      file.merge_patch(grids[j]);
      train(resumed(file, from + "/" + checkpoint_name(kStop), to));
      const auto rest = metrics_of(to);
      REQUIRE(rest.size() == kSteps - kStop);
      for (size_t step = 0; step < rest.size(); ++step) {
        CHECK(rest[step]["step"] == whole[kStop + step]["step"]);
        CHECK(rest[step]["epoch"] == whole[kStop + step]["epoch"]);
        CHECK(rest[step]["loss"].get<double>() == Approx(whole[kStop + step]["loss"].get<double>()).epsilon(1e-12));
        CHECK(rest[step]["grad_norm"].get<double>() ==
              Approx(whole[kStop + step]["grad_norm"].get<double>()).epsilon(1e-9));
      }
      CHECK(largest_difference(folder / "whole/model.safetensors", to + "/model.safetensors") < 1e-8);
    }
  }
}

TEST_CASE("the newest intact checkpoint is taken, and records read like one run") {
  const RunFolder folder("resume-newest");
  json file = long_run(folder, "out", {{"training", {{"save_steps", 5}}}});
  train(file);
  const auto whole = metrics_of(folder / "out");
  const std::string model = bytes_of(folder / "out/model.safetensors");
  CHECK(bytes_of(folder / "out/newest") == "checkpoint-20\n");
  const fs::path out = folder / "out";

  // A bit of one state flips in the newest, and the one before it is no longer complete.
  fs::remove(out / "checkpoint-15/manifest.json");
  std::string states = bytes_of(out / "checkpoint-20/optimizer.safetensors");
  states[states.size() / 2] ^= 4;
  std::ofstream(out / "checkpoint-20/optimizer.safetensors", std::ios::binary) << states;
  for (const json& newest : {json(true), json("auto")}) {
    file["training"]["resume_from_checkpoint"] = newest;
    const std::string said = train(file);
    CHECK_THAT(said, Contains("checkpoint-10 after step 10"));
    CHECK(metrics_of(out) == whole);
    CHECK(bytes_of(out / "model.safetensors") == model);
    if (newest == true) CHECK_THAT(said, Contains("checkpoint-20 is damaged") && Contains(".exp_avg"));
    fs::remove_all(out / "checkpoint-20");
    fs::remove_all(out / "checkpoint-15");
  }

  fs::remove_all(out);
  CHECK_THAT(message_of<ConfigError>([&] {
               file["training"]["resume_from_checkpoint"] = true;
               train(file);
             }),
             Contains("has no checkpoint"));
  const Config config = parse_config(file.dump(), "run.json");
  CHECK_THAT(obstacles_now(config, open_model(config).spec).front(), Contains("has no checkpoint"));
  file["training"]["resume_from_checkpoint"] = "auto";
  train(file);
  CHECK(metrics_of(out) == whole);
}

TEST_CASE("checkpoints of an attempt that is not continued are set aside") {
  const RunFolder folder("resume-branch");
  json file = long_run(folder, "out", {{"training", {{"save_steps", 5}, {"save_total_limit", 2}}}});
  train(file);
  const auto steps_in = [&] {
    std::vector<int64_t> steps;
    for (const auto& place : checkpoints_in(folder / "out")) steps.push_back(place.step);
    return steps;
  };
  CHECK(steps_in() == std::vector<int64_t>{20, 15});
  file["training"]["resume_from_checkpoint"] = folder / "out/checkpoint-15";
  file["training"]["save_steps"] = 2;
  train(file);
  CHECK(steps_in() == std::vector<int64_t>{20, 18});
  CHECK(fs::exists(folder / "out/checkpoint-20.superseded/manifest.json"));

  // Neither a directory of another run nor checkpoints of one are taken for its own.
  json other = long_run(folder, "other");
  train(other);
  other["training"]["resume_from_checkpoint"] = folder / "out/checkpoint-18";
  CHECK_THAT(message_of<ConfigError>([&] { train(other); }), Contains("is not empty"));
  json third = long_run(folder, "third", {{"training", {{"checkpoint_dir", folder / "out"}}}});
  CHECK_THAT(message_of<ConfigError>([&] { train(third); }), Contains("has checkpoints already"));
  CHECK(steps_in() == std::vector<int64_t>{20, 18});
}

TEST_CASE("a run does not remove the checkpoint that it continues") {
  const RunFolder folder("resume-source");
  json file = long_run(folder, "out", {{"training", {{"save_steps", 5}}}});
  train(file);
  fs::create_directory(folder / "out/previous-model");
  fs::rename(folder / "out/checkpoint-10", folder / "out/previous-model/checkpoint-10");
  file["training"]["resume_from_checkpoint"] = folder / "out/previous-model/checkpoint-10";
  CHECK_THAT(message_of<ConfigError>([&] { train(file); }), Contains("would replace"));
  CHECK(fs::exists(folder / "out/previous-model/checkpoint-10/manifest.json"));
}

TEST_CASE("settings that would change the curve are named, and need a word") {
  const RunFolder folder("resume-changes");
  json file = long_run(folder, "out");
  train(file);
  file = resumed(file, folder / "out/checkpoint-13", folder / "more");
  file["training"]["learning_rate"] = 2e-3;
  file["training"]["global_batch_size"] = 4;
  const auto message = message_of<ConfigError>([&] { train(file); });
  CHECK_THAT(message, Contains("/training/learning_rate: 0.001 in the checkpoint, 0.002 now") &&
                          Contains("/training/global_batch_size: 8 in the checkpoint, 4 now") &&
                          Contains("resume_with_changes"));
  file["training"]["resume_with_changes"] = true;
  CHECK_THAT(train(file), Contains("with changes"));
}

TEST_CASE("a run that is refused changes nothing") {
  const RunFolder folder("resume-refused");
  const json file = long_run(folder, "out");
  train(file);
  const fs::path damaged = folder / "out/checkpoint-12";
  fs::copy(folder / "out/checkpoint-13", damaged);
  fs::resize_file(damaged / "optimizer.safetensors", 1000);
  const auto before = files_in(folder / "out");
  CHECK(before.contains("model.safetensors"));
  const json from = {{"resume_from_checkpoint", folder / "out/checkpoint-13"}, {"resume_with_changes", true}};
  const std::vector<json> refused = {
      {{"training", {{"resume_with_changes", false}, {"learning_rate", 2e-3}}}},  // another curve
      {{"model", {{"config", {{"n_layer", 3}}}}}},                                // other names
      {{"model", {{"config", {{"n_embd", 48}}}}}},                                // other shapes
      {{"training", {{"optim", "adafactor"}}}},                                   // other states
      {{"training", {{"resume_from_checkpoint", damaged}}}}};
  for (const json& changes : refused) {
    CAPTURE(changes.dump());
    json again = file;
    again.merge_patch({{"training", from}});
    again.merge_patch(changes);
    CHECK_FALSE(message_of<Error>([&] { train(again); }).empty());
    CHECK(files_in(folder / "out") == before);
  }
}

TEST_CASE("the best checkpoint stays and becomes the model") {
  const RunFolder folder("resume-best");
  // The loss falls, so the first evaluation has the largest one.
  json file = long_run(folder, "out",
                       {{"training",
                         {{"save_steps", 4},
                          {"eval_strategy", "steps"},
                          {"eval_steps", 4},
                          {"save_total_limit", 2},
                          {"greater_is_better", true},
                          {"load_best_model_at_end", true}}},
                        {"data", {{"validation_split_percentage", 10}}}});
  CHECK_THAT(train(file), Contains("the best model is that of"));
  std::vector<int64_t> kept;
  for (const auto& place : checkpoints_in(folder / "out")) kept.push_back(place.step);
  double best = 0;
  int64_t best_step = 0;
  for (const auto& line : metrics_of(folder / "out"))
    if (line.contains("eval_loss") && line["eval_loss"] > best) {
      best = line["eval_loss"];
      best_step = line["step"];
    }
  REQUIRE(best_step < kSteps);
  CHECK(kept == std::vector<int64_t>{kSteps, best_step});
  CHECK(bytes_of(folder / "out/model.safetensors") ==
        bytes_of(folder / cat("out/checkpoint-", best_step, "/model.safetensors")));
}

TEST_CASE("a share of the steps that gives checkpoints without evaluations is refused once the steps are known") {
  const RunFolder folder("resume-share");
  const json file = long_run(folder, "out",
                             {{"training",
                               {{"max_steps", nullptr},
                                {"num_train_epochs", 1},
                                {"save_steps", 0.3},  // 5 of 16
                                {"eval_strategy", "steps"},
                                {"eval_steps", 4},
                                {"load_best_model_at_end", true}}},
                              {"data", {{"validation_split_percentage", 10}}}});
  CHECK_THAT(message_of<ConfigError>([&] { train(file); }),
             Contains("/training/load_best_model_at_end: ") && Contains("is not a multiple of eval_steps 4"));
  CHECK_FALSE(fs::exists(folder / "out/metrics.jsonl"));
}

TEST_CASE(
    "a best checkpoint that is damaged by the end of the run is reported, and the last weights become the model") {
  const RunFolder folder("resume-damaged-best");
  json file = long_run(folder, "out",
                       {{"training",
                         {{"save_steps", 4},
                          {"eval_strategy", "steps"},
                          {"eval_steps", 4},
                          {"greater_is_better", true},
                          {"load_best_model_at_end", true}}},
                        {"data", {{"validation_split_percentage", 10}}}});
  train(file);
  const fs::path out = folder / "out";
  const std::string best = json::parse(bytes_of(out / "checkpoint-20/trainer_state.json"))["best_model_checkpoint"];
  REQUIRE(best != out / "checkpoint-20");
  std::string weights = bytes_of(fs::path(best) / "model.safetensors");
  weights[weights.size() / 2] ^= 1;
  std::ofstream(fs::path(best) / "model.safetensors", std::ios::binary) << weights;
  file["training"]["resume_from_checkpoint"] = out / "checkpoint-16";
  CHECK_THAT(message_of<RunError>([&] { train(file); }), Contains("the model is saved in") && Contains(best) &&
                                                             Contains("differ from their checksum") &&
                                                             Contains("so the last weights become the model"));
  CHECK(bytes_of(out / "model.safetensors") == bytes_of(out / "checkpoint-20/model.safetensors"));
}

}  // namespace shardline::run_checkpoints_test
