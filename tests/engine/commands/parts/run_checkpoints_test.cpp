// A run that stops and continues, on any layout, has the steps, numbers and files of an uninterrupted one.
#include "engine/commands/parts/run_checkpoints.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "engine/checkpoint/checkpoint_directory.h"
#include "engine/checkpoint/manifest.h"
#include "engine/commands/parts/run_checks.h"
#include "tests/engine/commands/long_run.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::run_checkpoints_test {
using Catch::Contains;
using nlohmann::json;
namespace fs = std::filesystem;
namespace {
// The bytes of all files below a directory, by path, except for flight records, which belong to the process.
std::map<std::string, std::string> files_in(const fs::path& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory))
    if (entry.is_regular_file() && !entry.path().parent_path().filename().string().starts_with("flight"))
      files[fs::relative(entry.path(), directory)] = file_bytes(entry.path());
  return files;
}

// Evaluates and saves after every fourth step. The loss falls, so the first evaluation has the largest one.
json best_run(const RunFolder& folder, const std::string& output) {
  return long_run(folder, output,
                  {{"training",
                    {{"save_steps", 4},
                     {"eval_strategy", "steps"},
                     {"eval_steps", 4},
                     {"greater_is_better", true},
                     {"load_best_model_at_end", true}}},
                   {"data", {{"validation_split_percentage", 10}}}});
}

std::vector<int64_t> steps_in(const fs::path& directory) {
  std::vector<int64_t> steps;
  for (const auto& place : checkpoints_in(directory)) steps.push_back(place.step);
  return steps;
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
      {{"name", "frozen"},
       {"training", {{"trainable", {"transformer.h.1.*", "transformer.ln_f.*"}}, {"bf16", true}}},
       {"smp_options", {{"pipeline_parallel_degree", 2}, {"microbatches", 2}, {"shard_optimizer_state", true}}},
       {"mpi_options", {{"processes_per_host", 4}}}},
      {{"name", "frozen, ZeRO-3"},
       {"training", {{"trainable", {"transformer.h.0.mlp.*"}}, {"optim", "adafactor"}}},
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
    CHECK(file_bytes(again + "/model.safetensors") == file_bytes(folder / name + "/model.safetensors"));
    const fs::path last = checkpoint_name(kSteps);
    CHECK(file_bytes(again / last / "optimizer.safetensors") ==
          file_bytes(folder / name / last / "optimizer.safetensors"));
    const auto all = metrics_of(folder / name);
    const auto rest = metrics_of(again);
    REQUIRE(rest.size() == kSteps - kStop);
    CHECK(std::equal(rest.begin(), rest.end(), all.begin() + kStop));
    const json state = json::parse(file_bytes(again / last / "trainer_state.json"));
    CHECK(state == json::parse(file_bytes(folder / name / last / "trainer_state.json")));
    CHECK(state["global_step"] == kSteps);
    CHECK(state["log_history"].size() == kSteps / 4);
  }
}

TEST_CASE("a run that continues in fp16 tolerates as many overflows as one that was never stopped") {
  const RunFolder folder("resume-hysteresis");
  // Every step overflows. Two overflows are tolerated, both of them before the checkpoint.
  const json whole = long_run(folder, "whole",
                              {{"training",
                                {{"fp16", true},
                                 {"max_steps", 6},
                                 {"save_steps", 2},
                                 {"dynamic_loss_args", {{"init_scale", 4294967296}, {"delayed_shift", 3}}}}}});
  train(whole);
  const auto all = metrics_of(folder / "whole");
  REQUIRE(all.size() == 6);
  CHECK(all[2]["loss_scale"] == all[0]["loss_scale"]);
  CHECK(all[3]["loss_scale"] < all[2]["loss_scale"]);
  const std::string checkpoint = folder / "whole/checkpoint-2";
  const json state = json::parse(file_bytes(checkpoint + "/trainer_state.json"));
  CHECK(state["stateful_callbacks"]["shardline"]["loss_scaler"]["hysteresis"] == 1);
  train(resumed(whole, checkpoint, folder / "again"));
  const auto rest = metrics_of(folder / "again");
  REQUIRE(rest.size() == 4);
  CHECK(std::equal(rest.begin(), rest.end(), all.begin() + 2));
}

TEST_CASE("checkpoints are saved after epochs, or only for the best evaluations") {
  const RunFolder folder("resume-strategies");
  train(long_run(folder, "epochs", {{"training", {{"save_strategy", "epoch"}}}}));
  CHECK(steps_in(folder / "epochs") == std::vector<int64_t>{20, 16});

  json file = best_run(folder, "best");
  file["training"]["save_strategy"] = "best";
  file["training"]["greater_is_better"] = false;  // the loss falls
  file["training"]["save_total_limit"] = 1;
  train(file);
  const auto all = metrics_of(folder / "best");
  double best = INFINITY;
  int64_t best_step = 0;
  for (const auto& line : all)
    if (line.contains("eval_loss") && line["eval_loss"] < best) {
      best = line["eval_loss"];
      best_step = line["step"];
    }
  CHECK(steps_in(folder / "best") == std::vector<int64_t>{best_step});
  const std::string model = file_bytes(folder / "best/model.safetensors");
  CHECK(model == file_bytes(folder / cat("best/", checkpoint_name(best_step), "/model.safetensors")));

  // The run continues from its best step and finds the same best step again.
  file["training"]["resume_from_checkpoint"] = true;
  train(file);
  CHECK(metrics_of(folder / "best") == all);
  CHECK(file_bytes(folder / "best/model.safetensors") == model);
}

TEST_CASE("a run continues from the newest intact checkpoint, and its records look like those of one run") {
  const RunFolder folder("resume-newest");
  json file = long_run(folder, "out", {{"training", {{"save_steps", 5}}}});
  train(file);
  const auto whole = metrics_of(folder / "out");
  const std::string model = file_bytes(folder / "out/model.safetensors");
  CHECK(file_bytes(folder / "out/newest") == "checkpoint-20\n");
  const fs::path out = folder / "out";

  // One bit of a state is flipped in the newest checkpoint, and the previous one is incomplete.
  fs::remove(out / "checkpoint-15/manifest.json");
  std::string states = file_bytes(out / "checkpoint-20/optimizer.safetensors");
  states[states.size() / 2] ^= 4;
  std::ofstream(out / "checkpoint-20/optimizer.safetensors", std::ios::binary) << states;
  for (const json& newest : {json(true), json("auto")}) {
    file["training"]["resume_from_checkpoint"] = newest;
    const std::string said = train(file);
    CHECK_THAT(said, Contains("checkpoint-10 after step 10"));
    CHECK(metrics_of(out) == whole);
    CHECK(file_bytes(out / "model.safetensors") == model);
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

  // A run adopts neither the directory of another run nor its checkpoints.
  json other = long_run(folder, "other");
  train(other);
  other["training"]["resume_from_checkpoint"] = folder / "out/checkpoint-18";
  CHECK_THAT(message_of<ConfigError>([&] { train(other); }), Contains("is not empty"));
  json third = long_run(folder, "third", {{"training", {{"checkpoint_dir", folder / "out"}}}});
  CHECK_THAT(message_of<ConfigError>([&] { train(third); }), Contains("already has checkpoints"));
  CHECK(steps_in() == std::vector<int64_t>{20, 18});
}

TEST_CASE("a run does not remove the checkpoint that it continues") {
  const RunFolder folder("resume-source");
  json file = long_run(folder, "out", {{"training", {{"save_steps", 5}}}});
  train(file);
  fs::create_directory(folder / "out/previous-model");
  fs::rename(folder / "out/checkpoint-10", folder / "out/previous-model/checkpoint-10");
  file["training"]["resume_from_checkpoint"] = folder / "out/previous-model/checkpoint-10";
  CHECK_THAT(message_of<ConfigError>([&] { train(file); }), Contains("is not one of the run's checkpoints there"));
  file["training"]["overwrite_output_dir"] = true;
  CHECK_THAT(message_of<ConfigError>([&] { train(file); }), Contains("would replace"));
  CHECK(fs::exists(folder / "out/previous-model/checkpoint-10/manifest.json"));
}

TEST_CASE("changed settings that affect the loss curve are listed and need resume_with_changes") {
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

TEST_CASE("auto_find_batch_size continues with a smaller batch, but not with other changes") {
  const RunFolder folder("resume-smaller-batch");
  json file = long_run(folder, "out");
  file["training"]["auto_find_batch_size"] = true;
  train(file);
  file = resumed(file, folder / "out/checkpoint-13", folder / "more");
  file["training"]["global_batch_size"] = 4;
  json other = file;
  other["training"]["learning_rate"] = 2e-3;
  CHECK_THAT(message_of<ConfigError>([&] { train(other); }), Contains("/training/learning_rate: 0.001 in the"));
  CHECK_THAT(train(file), Contains("with changes") && Contains("global_batch_size: 8 in the checkpoint, 4 now"));
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
    const bool is_unchanged = files_in(folder / "out") == before;  // without printing the files
    CHECK(is_unchanged);
  }
}

TEST_CASE("the best checkpoint stays and becomes the model") {
  const RunFolder folder("resume-best");
  json file = best_run(folder, "out");
  file["training"]["save_total_limit"] = 2;
  file["smp_options"]["pipeline_parallel_degree"] = GENERATE(1, 2);
  file["mpi_options"]["processes_per_host"] = file["smp_options"]["pipeline_parallel_degree"];
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
  CHECK(file_bytes(folder / "out/model.safetensors") ==
        file_bytes(folder / cat("out/checkpoint-", best_step, "/model.safetensors")));
}

TEST_CASE("a stopped run that saves only models keeps the best one and names it") {
  const RunFolder folder("resume-best-alone");
  json file = best_run(folder, "out");
  file["training"].merge_patch({{"save_only_model", true},
                                {"save_total_limit", 1},
                                {"save_steps", 50},
                                {"eval_steps", 50},
                                {"max_steps", 100000}});
  const fs::path out = folder / "out";
  std::atomic<bool> ended = false;
  std::thread stopping([&] {
    while (!ended && !fs::exists(out / "checkpoint-50")) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::ofstream(out / "stop");
  });
  const std::string said = message_of<StoppedAfterSaving>([&] { train(file); });
  ended = true;
  stopping.join();
  CHECK_THAT(said, Contains("stopped by the file"));
  const auto saved = steps_in(out);
  REQUIRE(saved.size() == 2);
  CHECK(saved.back() == 50);
  CHECK(json::parse(file_bytes(out / checkpoint_name(saved.front()) / "trainer_state.json"))["best_global_step"] == 50);
}

TEST_CASE("a save_steps fraction that skips evaluations is refused once the number of steps is known") {
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
  json file = best_run(folder, "out");
  train(file);
  const fs::path out = folder / "out";
  const std::string best = json::parse(file_bytes(out / "checkpoint-20/trainer_state.json"))["best_model_checkpoint"];
  REQUIRE(best != out / "checkpoint-20");
  std::string weights = file_bytes(fs::path(best) / "model.safetensors");
  weights[weights.size() / 2] ^= 1;
  std::ofstream(fs::path(best) / "model.safetensors", std::ios::binary) << weights;
  file["training"]["resume_from_checkpoint"] = out / "checkpoint-16";
  CHECK_THAT(message_of<RunError>([&] { train(file); }),
             Contains("the model of the last step is saved in") && Contains(best) &&
                 Contains("do not match their checksum") && Contains("so the last weights become the final model"));
  CHECK(file_bytes(out / "model.safetensors") == file_bytes(out / "checkpoint-20/model.safetensors"));
}

TEST_CASE("a run that continues a checkpoint from elsewhere does not treat records of another run as its own") {
  const RunFolder folder("resume-elsewhere");
  json other = long_run(folder, "other", {{"training", {{"save_steps", 5}}}});
  train(other);
  train(long_run(folder, "base"));
  json file = resumed(long_run(folder, "mine", {{"training", {{"checkpoint_dir", folder / "other"}}}}),
                      folder / "base/checkpoint-13", folder / "mine");
  CHECK_THAT(message_of<ConfigError>([&] { train(file); }), Contains("already has checkpoints"));
  CHECK(steps_in(folder / "other") == std::vector<int64_t>{20, 15, 10, 5});

  other["training"].merge_patch({{"resume_from_checkpoint", folder / "base/checkpoint-13"},
                                 {"overwrite_output_dir", true},
                                 {"save_total_limit", 1}});
  CHECK_THAT(train(other), Contains("note: renamed 4 checkpoints in") && Contains("to *.superseded"));
  CHECK(steps_in(folder / "other") == std::vector<int64_t>{20});
  for (const int step : {5, 10, 15, 20})
    CHECK(fs::exists(folder / cat("other/checkpoint-", step, ".superseded/manifest.json")));
  CHECK(metrics_of(folder / "other").front()["step"] == 14);
}

TEST_CASE("a run may start from a checkpoint elsewhere and then continue from its own checkpoints") {
  const RunFolder folder("resume-auto-elsewhere");
  train(long_run(folder, "base"));
  json file = long_run(folder, "mine");
  file["training"]["resume_from_checkpoint"] = {"auto", folder / "none/checkpoint-13"};
  CHECK_THAT(message_of<ConfigError>([&] { train(file); }), Contains("none/checkpoint-13 does not exist"));
  file["training"]["resume_from_checkpoint"] = {"auto", folder / "base/checkpoint-13"};
  CHECK_THAT(train(file), Contains(cat(folder / "mine has no checkpoint, so the run starts from ",
                                       folder / "base/checkpoint-13\n")) &&
                              Contains(cat("continues ", folder / "base/checkpoint-13 after step 13")));
  CHECK(metrics_of(folder / "mine").front()["step"] == 14);
  CHECK(file_bytes(folder / "mine/model.safetensors") == file_bytes(folder / "base/model.safetensors"));
  CHECK_THAT(train(file), Contains(cat("continues ", folder / "mine/checkpoint-20 after step 20")));
  CHECK(metrics_of(folder / "mine").front()["step"] == 14);
}

TEST_CASE("text that a run quotes from a checkpoint cannot send commands to the terminal") {
  const RunFolder folder("resume-stranger");
  json file = long_run(folder, "base");
  train(file);
  const fs::path checkpoint = folder / "base/checkpoint-13";
  const auto error_with = [&](const std::string& state) {
    Manifest manifest = read_manifest(checkpoint);
    manifest.files["trainer_state.json"] = pieces_of(state);
    std::ofstream(checkpoint / "trainer_state.json", std::ios::binary) << state;
    std::ofstream(checkpoint / kManifestFile, std::ios::binary) << manifest_text(manifest);
    try {
      train(resumed(file, checkpoint, folder / "mine"));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  json state = json::parse(file_bytes(checkpoint / "trainer_state.json"));
  state["stateful_callbacks"]["shardline"]["curve"]["/training/\x1b[2J"] = 1;
  CHECK_THAT(error_with(state.dump()), Contains("/training/?[2J: 1 in the checkpoint") && !Contains("\x1b"));
  CHECK_THAT(error_with(R"({"\u001b[2J": 1, "\u001b[2J": 2})"), Contains("?[2J") && !Contains("\x1b"));
}

TEST_CASE("a checkpoint that was set aside continues its run only under its own name") {
  const RunFolder folder("resume-aside");
  json file = long_run(folder, "out", {{"training", {{"save_steps", 5}}}});
  train(file);
  file["training"]["resume_from_checkpoint"] = folder / "out/checkpoint-10";
  CHECK_THAT(train(file), Contains("note: renamed 2 checkpoints in"));
  const auto before = files_in(folder / "out");
  file["training"]["resume_from_checkpoint"] = folder / "out/checkpoint-15.superseded";
  CHECK_THAT(message_of<ConfigError>([&] { train(file); }),
             Contains("checkpoint-15.superseded is in ") && Contains("rename it to " + folder / "out/checkpoint-STEP"));
  CHECK(files_in(folder / "out") == before);
  train(resumed(file, folder / "out/checkpoint-15.superseded", folder / "new"));
  CHECK(metrics_of(folder / "new").front()["step"] == 16);
}

TEST_CASE("a run continues from the newest checkpoint that has the optimizer's state") {
  const RunFolder folder("resume-models");
  json file = long_run(folder, "out", {{"training", {{"save_steps", 5}, {"resume_from_checkpoint", "auto"}}}});
  train(file);
  const std::string weights = file_bytes(folder / "out/model.safetensors");
  for (const int step : {15, 20}) fs::remove_all(folder / cat("out/checkpoint-", step));
  file["training"]["save_only_model"] = true;
  train(file);
  REQUIRE(steps_in(folder / "out") == std::vector<int64_t>{20, 15, 10, 5});
  REQUIRE_FALSE(fs::exists(folder / "out/checkpoint-15/optimizer.safetensors"));
  CHECK_THAT(train(file), Contains("checkpoint-20 is skipped: without the optimizer's state") &&
                              Contains("checkpoint-10 after step 10"));
  CHECK(file_bytes(folder / "out/model.safetensors") == weights);
  for (const int step : {5, 10}) fs::remove_all(folder / cat("out/checkpoint-", step));
  CHECK_THAT(message_of<DataError>([&] { train(file); }), Contains("checkpoint-20 is skipped: "));
}

TEST_CASE("a run that ends while it replaces records leaves no later checkpoint to continue without them") {
  const RunFolder folder("resume-replace");
  json file = long_run(folder, "out", {{"training", {{"save_steps", 5}}}});
  train(file);
  fs::remove(folder / "out/metrics.jsonl");
  fs::create_directories(folder / "out/metrics.jsonl/not a file");
  file["training"]["resume_from_checkpoint"] = folder / "out/checkpoint-10";
  CHECK_THROWS(train(file));
  CHECK(steps_in(folder / "out") == std::vector<int64_t>{10, 5});
}

TEST_CASE("directories of other programs with the names of checkpoints are kept and reported") {
  const RunFolder folder("resume-strangers");
  json file = long_run(folder, "out", {{"training", {{"save_steps", 5}}}});
  const auto put_stranger = [&](int step) {
    fs::create_directories(folder / cat("out/checkpoint-", step));
    std::ofstream(folder / cat("out/checkpoint-", step, "/pytorch_model.bin")) << "weights of another program";
  };
  put_stranger(15);
  CHECK_THAT(message_of<ConfigError>([&] { train(file); }), Contains("is not empty"));
  file["training"]["resume_from_checkpoint"] = "auto";
  CHECK_THAT(message_of<DataError>([&] { train(file); }), Contains("checkpoint-15") && Contains("no manifest.json"));
  CHECK(fs::exists(folder / "out/checkpoint-15/pytorch_model.bin"));
  file["training"]["overwrite_output_dir"] = true;
  file["training"].erase("resume_from_checkpoint");
  CHECK_THAT(train(file), Contains("note: renamed 1 checkpoint in"));
  CHECK(fs::exists(folder / "out/checkpoint-15.superseded/pytorch_model.bin"));

  // This also holds next to checkpoints of the run, and where the run later saves its own.
  file["training"].erase("overwrite_output_dir");
  file["training"]["resume_from_checkpoint"] = "auto";
  fs::remove_all(folder / "out/checkpoint-15");
  fs::remove_all(folder / "out/checkpoint-20");
  put_stranger(15);
  CHECK_THAT(train(file),
             Contains("warning: ") && Contains("checkpoint-15 is skipped") && Contains("checkpoint-10 after step 10"));
  CHECK(fs::exists(folder / "out/checkpoint-15.superseded-2/pytorch_model.bin"));
  CHECK(steps_in(folder / "out") == std::vector<int64_t>{20, 15, 10, 5});
}

TEST_CASE("the best evaluation so far counts only if it has a checkpoint and can be compared") {
  const RunFolder folder("resume-best-before");
  const json file = best_run(folder, "out");
  train(file);
  const fs::path out = folder / "out";
  const json state = json::parse(file_bytes(out / "checkpoint-16/trainer_state.json"));
  REQUIRE(state["best_global_step"] == 4);
  const auto continue_with = [&](const json& training) {
    json again = file;
    again["training"]["resume_from_checkpoint"] = out / "checkpoint-16";
    again["training"].merge_patch(training);
    return train(again);
  };
  CHECK_THAT(continue_with(json::object()),
             Contains("the best model is that of") && Contains("checkpoint-4") && !Contains("no longer counts"));
  SECTION("another direction") {
    CHECK_THAT(continue_with({{"greater_is_better", false}}),
               Contains("after step 4, no longer counts, because evaluations are now compared by"));
    CHECK(json::parse(file_bytes(out / "checkpoint-20/trainer_state.json"))["best_global_step"] == 20);
  }
  SECTION("another metric") {
    CHECK_THAT(continue_with({{"metric_for_best_model", "perplexity"}}), Contains("no longer counts"));
  }
  SECTION("its checkpoint is gone") {
    fs::remove_all(out / "checkpoint-4");
    const std::string said = continue_with(json::object());
    CHECK_THAT(said, Contains("no longer counts, because") && Contains("has no checkpoint-4"));
    CHECK_THAT(said, Contains("the best model is that of") && Contains("checkpoint-20"));
  }
  SECTION("its checkpoint is elsewhere") {
    json again = resumed(file, out / "checkpoint-4", folder / "more");
    CHECK_THAT(train(again), Contains("no longer counts"));
    CHECK(json::parse(file_bytes(folder / "more/checkpoint-20/trainer_state.json"))["best_global_step"] == 8);
  }
}

TEST_CASE("the best model is loaded even if it is that of the last requested step but not of the current weights") {
  const RunFolder folder("resume-best-shorter");
  json file = best_run(folder, "out");
  train(file);
  const fs::path out = folder / "out";
  REQUIRE(json::parse(file_bytes(out / "checkpoint-16/trainer_state.json"))["best_global_step"] == 4);
  file["training"].merge_patch(
      {{"resume_from_checkpoint", (out / "checkpoint-16").string()}, {"resume_with_changes", true}, {"max_steps", 4}});
  CHECK_THAT(train(file), Contains("nothing is left to train") && Contains("the best model is that of"));
  CHECK(file_bytes(out / "model.safetensors") == file_bytes(out / "checkpoint-4/model.safetensors"));
}

TEST_CASE("the messages of a run state what it continues with") {
  const RunFolder folder("resume-messages");
  json file = long_run(folder, "out", {{"training", {{"checkpoint_dir", folder / "saved"}}}});
  CHECK_THAT(train(file), Contains(cat("saved ", folder / "saved/checkpoint-13")));
  json again = file;
  CHECK_THAT(message_of<ConfigError>([&] { train(again); }), Contains("already has checkpoints"));
  again["training"]["resume_from_checkpoint"] = true;
  CHECK_THAT(train(again), Contains("all 20 steps were already done, so nothing is left to train") &&
                               Contains("weights of " + folder / "saved/checkpoint-20"));

  // If it were forgotten, the run would start with step 1.
  again["training"].erase("checkpoint_dir");
  again["training"]["resume_from_checkpoint"] = "auto";
  const auto before = files_in(folder / "out");
  CHECK_THAT(message_of<ConfigError>([&] { train(again); }),
             Contains("/training/checkpoint_dir: ") && Contains("set checkpoint_dir to " + folder / "saved"));
  CHECK(files_in(folder / "out") == before);

  again = long_run(folder, "new");
  again["training"]["resume_from_checkpoint"] = "auto";
  CHECK_THAT(train(again), Contains("has no checkpoint, so the run starts with step 1"));
  again["training"].erase("resume_from_checkpoint");
  CHECK_THAT(message_of<ConfigError>([&] { train(again); }), Contains("resume_from_checkpoint true"));
  const auto refusal_of = [&](const std::string& path) {
    again["training"]["resume_from_checkpoint"] = path;
    return message_of<ConfigError>([&] { train(again); });
  };
  CHECK_THAT(refusal_of(folder / "new"),
             Contains("contains checkpoints but is not one itself; name " + folder / "new/checkpoint-20"));
  CHECK_THAT(refusal_of("checkpoint-7"), Contains(folder / "new/checkpoint-7" + " does not exist; name the directory"));
  again["training"]["resume_from_checkpoint"] = "checkpoint-13";  // a bare name refers to the directory of checkpoints
  CHECK_THAT(train(again), Contains("continues " + folder / "new/checkpoint-13"));
  fs::create_directory(folder / "empty");
  CHECK_THAT(refusal_of(folder / "empty"), Contains("has no manifest.json; name the directory of a checkpoint"));
  again["training"]["optim"] = "adafactor";
  CHECK_THAT(refusal_of(folder / "new/checkpoint-13"),
             Contains("/training/optim: ") && !Contains("resume_with_changes"));
  again = long_run(folder, "new", {{"training", {{"max_steps", kSteps + 10}}}});
  CHECK_THAT(refusal_of(folder / "new/checkpoint-13"),
             Contains("\n/training/max_steps or num_train_epochs (total steps): 20 in the checkpoint, 30 now\n"));
  again = long_run(folder, "new");
  again["model"]["config"]["attn_pdrop"] = 0.2;
  const std::string refusal = message_of<ConfigError>([&] {
    again["training"]["resume_from_checkpoint"] = folder / "new/checkpoint-13";
    train(again);
  });
  CHECK_THAT(refusal, Contains("/model/config/attn_pdrop: 0.1 in the checkpoint, 0.2 now") && !Contains("n_embd"));
}

}  // namespace shardline::run_checkpoints_test
