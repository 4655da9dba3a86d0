#include "engine/run/output_dir.h"

#include <unistd.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "core/comm/communicator_base.h"
#include "core/error.h"
#include "engine/config/config.h"
#include "engine/observe/tensorboard.h"
#include "engine/run/model_source.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::output_dir_test {

using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

constexpr const char* kModel = R"({"model_type": "gpt2", "vocab_size": 256, "n_positions": 8, "n_embd": 4, "n_layer": 1,
                                   "n_head": 1})";

// The current directory of the process during its lifetime.
class CurrentPath {
 public:
  explicit CurrentPath(const fs::path& path) : before_(fs::current_path()) { fs::current_path(path); }
  ~CurrentPath() { fs::current_path(before_); }

 private:
  fs::path before_;
};

// A folder with `out`, in which an earlier run left its model and records, and somebody else a file of their own.
class Earlier {
 public:
  Earlier() {
    for (const char* name : {"config.json", "model.safetensors", "tokenizer.json", "metrics.jsonl", "plan.json",
                             "config.resolved.json", "schedule.svg", "timeline/step-2.json", "flight/rank-0",
                             "events.out.tfevents.1.host", "model.safetensors.incomplete", "profile.json", "mine.txt"})
      write("out/" + std::string(name), name);
  }
  void write(const std::string& name, const std::string& bytes) const { folder_.write(name, bytes); }
  fs::path path(const std::string& name = "") const { return name.empty() ? folder_.path() : folder_.path() / name; }

  // Names of files below `name`, relative to it.
  std::set<std::string> files(const std::string& name) const {
    std::set<std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(path(name)))
      if (entry.is_regular_file()) found.insert(fs::relative(entry.path(), path(name)));
    return found;
  }

 private:
  TempFolder folder_;
};

Config config_for(const std::string& output_dir, const nlohmann::json& patch = nullptr) {
  nlohmann::json file = {{"model", {{"config", nlohmann::json::parse(kModel)}}},
                         {"data", {{"train", "text.txt"}, {"tokenizer", "bytes"}, {"sequence_length", 8}}},
                         {"training", {{"overwrite_output_dir", true}}},
                         {"output_dir", output_dir}};
  if (!patch.is_null()) file.merge_patch(patch);
  return parse_config(file.dump(), "run.json");
}

ModelSpec small_model() {
  return open_model(config_for("unused")).spec;
}

void prepare(const Config& config) {
  const auto locks = lock_output_dir(config, small_model());
  set_aside_checkpoints(config);
  replace_earlier_run(config);
}

std::string refusal(const Config& config) {
  return message_of<ConfigError>([&] { check_output_dir(config, small_model()); });
}

}  // namespace

TEST_CASE("A new or empty output directory is accepted, and made", "[output_dir]") {
  const TempFolder folder;
  const std::string out = folder.path() / "deeper" / "out";
  const Config config = config_for(out, {{"training", {{"overwrite_output_dir", false}}}});
  check_output_dir(config, small_model());
  CHECK_FALSE(fs::exists(out));
  prepare(config);
  CHECK(fs::is_directory(out));
  // Files left by a run that failed before it began, and a profile, do not count.
  folder.write("deeper/out/flight/rank-0", "x");
  folder.write("deeper/out/.cache/tokens.bin", "x");
  folder.write("deeper/out/profile.json", "x");
  folder.write("deeper/out/.lock", "x");
  check_output_dir(config, small_model());
}

TEST_CASE("Files of a run that ended before its first step do not prevent a repetition", "[output_dir]") {
  const TempFolder folder;
  const std::string out = folder.path() / "out";
  const nlohmann::json once = {{"training", {{"overwrite_output_dir", false}}}};
  for (const char* name : {".lock", "model.safetensors.incomplete", "config.json.incomplete", "flight/rank-0",
                           "flight.previous/rank-0", "config.resolved.json", "plan.json", "schedule.svg"})
    folder.write("out/" + std::string(name), "x");
  folder.write("out/metrics.jsonl", "");
  fs::create_directory(out + "/timeline");
  { const TensorBoardWriter events(out); }
  check_output_dir(config_for(out, once), small_model());

  // But a file that the run reads stays.
  auto reads_plan = once;
  reads_plan["smp_options"] = {{"load_partition", true}, {"partition_file", out + "/plan.json"}};
  CHECK_THAT(refusal(config_for(out, reads_plan)), Contains("would replace") && Contains("plan.json"));
  for (const char* name : {"metrics.jsonl", "timeline/step-2.json", "events.out.tfevents.1.host", "config.json"}) {
    const std::string file = folder.write("out/" + std::string(name), std::string(100, 'x'));
    CHECK_THAT(refusal(config_for(out, once)), Contains("is not empty"));
    fs::remove(file);
  }

  prepare(config_for(out, once));
  CHECK(fs::exists(out + "/config.resolved.json"));
  CHECK(
      fs::exists(out + "/flight/rank-0"));  // the new run may still be refused, and records say why the last one ended
  CHECK(std::distance(fs::directory_iterator(out), fs::directory_iterator()) == 3);
}

TEST_CASE("Records are copied without the model and without files that users have added", "[output_dir]") {
  const Earlier earlier;
  earlier.write("out/predictions.jsonl", "new");
  earlier.write("copy/predictions.jsonl", "of an earlier attempt");
  const Config config = config_for(earlier.path("out"));
  copy_records(config, earlier.path("copy"));
  CHECK(earlier.files("copy") == std::set<std::string>{"config.resolved.json", "events.out.tfevents.1.host",
                                                       "metrics.jsonl", "plan.json", "predictions.jsonl",
                                                       "schedule.svg", "timeline/step-2.json"});
  CHECK(fs::file_size(earlier.path("copy/metrics.jsonl")) == std::string("metrics.jsonl").size());
  CHECK(fs::file_size(earlier.path("copy/predictions.jsonl")) == 3);
  const auto before = earlier.files("out");
  copy_records(config, earlier.path("out"));  // the same folder
  CHECK(earlier.files("out") == before);
  copy_records(config_for(earlier.path("nowhere")), earlier.path("other"));
  CHECK_FALSE(fs::exists(earlier.path("other")));
}

TEST_CASE("A directory of checkpoints in output_dir does not keep a run from being repeated", "[output_dir]") {
  const TempFolder folder;
  const std::string out = folder.path() / "out";
  const std::string checkpoints = GENERATE("checkpoints", "deeper/still/checkpoints");
  const auto config = [&](const nlohmann::json& source) {
    return config_for(out, {{"training",
                             {{"overwrite_output_dir", false},
                              {"checkpoint_dir", cat(out, '/', checkpoints)},
                              {"resume_from_checkpoint", source}}}});
  };
  folder.write("out/flight/rank-0", "x");
  fs::create_directories(cat(out, '/', checkpoints));
  check_output_dir(config(nullptr), small_model());
  check_output_dir(config("auto"), small_model());

  folder.write(cat("out/", checkpoints, "/checkpoint-5/manifest.json"), "x");
  folder.write(cat("out/", checkpoints, "/newest"), "checkpoint-5\n");
  check_output_dir(config("auto"), small_model());
  CHECK_THAT(refusal(config(nullptr)), Contains("already has checkpoints"));

  const auto somebodys = folder.write(cat("out/", GENERATE_COPY("", checkpoints + "/"), "mine.txt"), "x");
  CHECK_THAT(refusal(config("auto")), Contains("is not empty"));
}

TEST_CASE("Files of users are overwritten only with overwrite_output_dir", "[output_dir]") {
  const Earlier earlier;
  const auto before = earlier.files("out");
  const Config config = config_for(earlier.path("out"), {{"training", {{"overwrite_output_dir", false}}}});
  CHECK_THAT(refusal(config), Contains("out is not empty") && Contains("training.overwrite_output_dir"));
  CHECK_THROWS_AS(prepare(config), ConfigError);
  CHECK(earlier.files("out") == before);

  CHECK_THAT(refusal(config_for(earlier.path("out/mine.txt"))), Contains("mine.txt is a file; name a directory"));
}

TEST_CASE("An earlier run's records are removed, its model is moved to previous-model, and other files stay",
          "[output_dir]") {
  const Earlier earlier;
  const Config config = config_for(earlier.path("out"));
  prepare(config);
  const std::set<std::string> waiting = {"previous-model/config.json",
                                         "previous-model/model.safetensors",
                                         "previous-model/tokenizer.json",
                                         "config.resolved.json",
                                         "profile.json",
                                         "flight/rank-0",
                                         "mine.txt"};  // the run may have been started with the resolved config
  CHECK(earlier.files("out") == waiting);

  // The run failed: the next one finds no model, and the files that were set aside are kept.
  earlier.write("out/metrics.jsonl", "of the run that failed");
  prepare(config);
  CHECK(earlier.files("out") == waiting);
  CHECK(read_file(earlier.path("out/previous-model/config.json")) == "config.json");

  // The run succeeded.
  earlier.write("out/config.json", "new");
  remove_previous_model(config);
  CHECK(earlier.files("out") ==
        std::set<std::string>{"config.json", "config.resolved.json", "flight/rank-0", "profile.json", "mine.txt"});
  CHECK(read_file(earlier.path("out/config.json")) == "new");

  // A run that was killed before it could remove the previous model leaves two: the newer one counts.
  earlier.write("out/previous-model/config.json", "old");
  prepare(config);
  CHECK(read_file(earlier.path("out/previous-model/config.json")) == "new");
}

TEST_CASE("A model that a killed run was moving is completed, and replaces previous-model", "[output_dir]") {
  const TempFolder folder;
  const Config config = config_for(folder.path() / "out");
  for (const char* name : {"previous-model/config.json", "previous-model/model.safetensors"})
    folder.write(cat("out/", name), "old");
  for (const char* name :
       {"previous-model.moving/config.json", "previous-model.moving/tokenizer.json", "model.safetensors"})
    folder.write(cat("out/", name), "new");
  prepare(config);
  for (const char* name : {"config.json", "tokenizer.json", "model.safetensors"})
    CHECK(read_file(folder.path() / "out/previous-model" / name) == "new");
  CHECK(std::distance(fs::directory_iterator(config.output_dir), fs::directory_iterator()) == 1);
}

TEST_CASE("The file `newest` names a checkpoint that is not set aside, or is removed", "[output_dir]") {
  const TempFolder folder;
  const Config config = config_for(folder.path() / "out");
  for (const char* name : {"checkpoint-5", "checkpoint-8.part-1-of-2", "checkpoint-9"})
    folder.write(cat("out/", name, "/manifest.json"), name);
  folder.write("out/newest", "checkpoint-9\n");
  const auto newest_after = [&](std::optional<int64_t> resumed) {
    set_aside_checkpoints(config, resumed);
    return read_file(folder.path() / "out/newest");
  };
  CHECK(newest_after(9) == "checkpoint-9\n");
  CHECK(newest_after(8) == "checkpoint-8\n");
  CHECK(newest_after(5) == "checkpoint-5\n");
  set_aside_checkpoints(config, {});
  CHECK_FALSE(fs::exists(folder.path() / "out/newest"));
}

TEST_CASE("A disk without room for a host's part of the checkpoints is refused, and the error names the host",
          "[output_dir]") {
  const TempFolder folder;
  const Config config = config_for(folder.path() / "out", {{"training", {{"save_total_limit", 2}}}});
  check_checkpoint_room(config, 1e3);
  CHECK_THAT(message_of<RunError>([&] { check_checkpoint_room(config, 1e18); }),
             Contains("/output_dir: 3 checkpoints need ") && Contains(" on host " + host_name() + " has ") &&
                 Contains(" left; free some space there"));
  check_checkpoint_room(config_for(folder.path() / "out", {{"training", {{"save_strategy", "no"}}}}), 1e18);
}

TEST_CASE("A checkpoint belongs to a run by its path or by the target of its link", "[output_dir]") {
  const TempFolder folder;
  const Config config = config_for(folder.path() / "out");
  fs::create_directories(folder.path() / "out/checkpoint-4");
  fs::create_directories(folder.path() / "big/d8");
  fs::create_directory_symlink(folder.path() / "big/d8", folder.path() / "out/checkpoint-8");
  fs::create_directory_symlink(folder.path() / "out/checkpoint-4", folder.path() / "latest");
  fs::create_directory_symlink(folder.path() / "out", folder.path() / "run");
  for (const char* own : {"out/checkpoint-4", "out/checkpoint-4/", "out/../out/checkpoint-4", "out/checkpoint-8",
                          "out/checkpoint-8/", "run/checkpoint-8", "latest"})
    CHECK(is_in_place(config, folder.path() / own));
  for (const char* other : {"big/d8", "out", "big/checkpoint-4", "out/checkpoint-4/checkpoint-4"})
    CHECK_FALSE(is_in_place(config, folder.path() / other));
}

TEST_CASE("Incomplete checkpoints of killed runs are removed", "[output_dir]") {
  const TempFolder folder;
  for (const char* name :
       {"checkpoint-5.0123456789abcdef.incomplete", "checkpoint-6.incomplete", "checkpoint-7",
        "checkpoint-8.replaced.incomplete", "checkpoint-9.replaced.incomplete", "checkpoint-9", "notes.incomplete"})
    folder.write(cat("checkpoints/", name, "/manifest.json"), name);
  folder.write("checkpoints/shared-0123456789abcdef.incomplete", "");
  folder.write("checkpoints/newest.incomplete", "");
  prepare(
      config_for(folder.path() / "out", {{"training",
                                          {{"checkpoint_dir", folder.path() / "checkpoints"},
                                           {"resume_from_checkpoint", folder.path() / "checkpoints/checkpoint-9"}}}}));
  std::set<std::string> left;
  for (const auto& entry : fs::directory_iterator(folder.path() / "checkpoints")) left.insert(entry.path().filename());
  // The model that was about to be replaced is back, and a directory that belongs to somebody else is unchanged.
  CHECK(left == std::set<std::string>{"checkpoint-7.superseded", "checkpoint-8.superseded", "checkpoint-9.superseded",
                                      "notes.incomplete"});
  CHECK(read_file(folder.path() / "checkpoints/checkpoint-9.superseded/manifest.json") == "checkpoint-9");
}

TEST_CASE("Only one run at a time can use an output directory", "[output_dir]") {
  const Earlier earlier;
  const Config config = config_for(earlier.path("out"));
  std::optional<std::vector<OutputLock>> first = lock_output_dir(config, small_model());
  const auto during = earlier.files("out");
  CHECK(during.contains(OutputLock::kFile));
  for (const auto& said : {refusal(config), message_of<ConfigError>([&] { prepare(config); }),
                           message_of<ConfigError>([&] { OutputLock(earlier.path("out"), "/output_dir", "out"); })})
    CHECK_THAT(said, Contains("/output_dir: ") && Contains(cat("is in use by another run: process ", ::getpid())) &&
                         Contains(" on host ") && Contains(", started 2") && Contains("choose another output_dir"));
  CHECK(earlier.files("out") == during);

  first.reset();
  CHECK_FALSE(earlier.files("out").contains(OutputLock::kFile));
  check_output_dir(config, small_model());

  // The file that a killed run leaves does not lock the directory.
  earlier.write(cat("out/", OutputLock::kFile), "process 1 on host of long ago\n");
  check_output_dir(config, small_model());
  first.emplace(lock_output_dir(config, small_model()));
  CHECK_THAT(read_file(earlier.path("out") / OutputLock::kFile), Contains(std::to_string(::getpid())));
}

TEST_CASE("Only one run at a time can use a directory of checkpoints", "[output_dir]") {
  const TempFolder folder;
  const std::string shared = folder.path() / "checkpoints";
  const auto run = [&](const std::string& out, const std::string& checkpoints) {
    return config_for(folder.path() / out, {{"training", {{"checkpoint_dir", checkpoints}}}});
  };
  std::optional<std::vector<OutputLock>> first = lock_output_dir(run("one", shared), small_model());
  // Under either key, and however the path is spelled.
  const std::string other = shared + "/../checkpoints/";
  for (const auto& said : {refusal(run("two", shared)), refusal(run("two", other)), message_of<ConfigError>([&] {
                             const auto locks = lock_output_dir(run("two", shared), small_model());
                           })})
    CHECK_THAT(said, Contains("/training/checkpoint_dir: ") && Contains(cat("another run: process ", ::getpid())) &&
                         Contains("output_dir " + (folder.path() / "one").string()) &&
                         Contains("choose another checkpoint_dir"));
  CHECK_THAT(refusal(config_for(shared)), Contains("/output_dir: ") && Contains("in use by another run"));
  CHECK_FALSE(fs::exists(folder.path() / "two/.lock"));

  first.reset();
  folder.write("checkpoints/.lock", "process 1 on host of long ago\n");  // left by a run that was killed
  first.emplace(lock_output_dir(run("two", other), small_model()));
  first.emplace(lock_output_dir(run("three", folder.path() / "three/."), small_model()));  // the same directory
  CHECK(first->size() == 1);
}

TEST_CASE("A run does not replace what it reads, however the paths are spelled", "[output_dir]") {
  const Earlier earlier;
  const CurrentPath current(earlier.path());
  earlier.write("out/previous-model/config.json", "config.json");
  earlier.write("out/previous-model/tokenizer.json", "tokenizer.json");
  earlier.write("out/base/config.json", "config.json");
  earlier.write("elsewhere/config.json", "config.json");
  fs::create_directory_symlink("out", earlier.path("link"));
  fs::create_directory_symlink("out/previous-model", earlier.path("previous"));
  fs::create_symlink("../out/model.safetensors", earlier.path("elsewhere/model.safetensors"));

  const std::string absolute = earlier.path("out");
  for (const std::string out : {"out", "out/", "./out", "out/.", "elsewhere/../out", "out//", "link", "link/"})
    for (const std::string model :
         {"out", "out/", "./out/.", "elsewhere/../out/", "link", "link/", absolute.c_str(), "out/previous-model",
          "out/previous-model/", "previous", "previous/", "link/previous-model/", "elsewhere", "elsewhere/"}) {
      INFO(out << " from " << model);
      CHECK_THAT(refusal(config_for(out, {{"model", {{"path", model}}}})),
                 Contains("/output_dir: ") && Contains(model) && Contains("choose another output_dir"));
    }
  for (const char* tokenizer : {"out", "out/", "link/tokenizer.json", "previous/tokenizer.json", "previous/"}) {
    INFO(tokenizer);
    CHECK_THAT(refusal(config_for("out/", {{"data", {{"tokenizer", tokenizer}}}})), Contains(tokenizer));
  }
  for (const char* text : {"out/metrics.jsonl", "./link/timeline/step-2.json", "previous/config.json"}) {
    INFO(text);
    CHECK_THAT(refusal(config_for("out", {{"data", {{"train", {"mine.txt", text}}}}})), Contains(text));
    CHECK_THAT(refusal(config_for("out", {{"data", {{"validation", text}}}})), Contains(text));
  }
  CHECK_THAT(
      refusal(config_for("out", {{"smp_options", {{"partition_file", "./out/plan.json"}, {"load_partition", true}}}})),
      Contains("./out/plan.json"));
  // Files that runs never touch may be there.
  CHECK(refusal(config_for("out", {{"data", {{"train", "out/mine.txt"}}}})).empty());
  CHECK(refusal(config_for("out", {{"model", {{"path", "out/base/"}}}})).empty());
  CHECK(refusal(config_for(".", {{"model", {{"path", "out"}}}})).empty());
  CHECK(refusal(config_for("out", {{"model", {{"path", "no-such-model"}}}})).empty());
}

TEST_CASE("A disk without room for the model is found before anything is removed", "[output_dir]") {
  const Earlier earlier;
  const auto before = earlier.files("out");
  auto large = nlohmann::json::parse(kModel);
  large["n_embd"] = 1 << 23;  // 8e14 parameters
  const Config config = config_for(earlier.path("out"), {{"model", {{"config", large}}}});
  const ModelSpec spec = open_model(config).spec;
  CHECK_THAT(message_of<RunError>([&] { const auto locks = lock_output_dir(config, spec); }),
             Contains("/output_dir: the model, a checkpoint and the records of the ranks need ") &&
                 Contains("PiB, but ") && Contains(" left; free some space"));
  CHECK(earlier.files("out") == before);
}

}  // namespace shardline::output_dir_test
