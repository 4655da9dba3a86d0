// Whole training runs of a tiny model in one process, with ranks as threads.
#pragma once
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "core/error.h"
#include "engine/commands/job.h"
#include "engine/config/config.h"
#include "engine/run/ranks.h"

namespace shardline {

// A separate folder for each test process, removed at the end; token caches stay inside it.
class RunFolder {
 public:
  explicit RunFolder(const std::string& name)
      : path_(std::filesystem::temp_directory_path() / cat("shardline-", name, "-", getpid())) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
    setenv("XDG_CACHE_HOME", (path_ / "cache").c_str(), 1);
  }
  ~RunFolder() { std::filesystem::remove_all(path_); }
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  std::string operator/(const std::string& name) const { return path_ / name; }
  std::string write(const std::string& name, const std::string& content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

// 2 blocks of 4 heads, sequences of 16 bytes, one optimizer step of 8 samples; the keys in `changes` replace these.
inline nlohmann::json tiny_run(const RunFolder& folder, const nlohmann::json& changes = nlohmann::json::object()) {
  std::string text;
  for (int i = 0; text.size() < 2000; ++i) text += cat("line ", i * i, "\n");
  nlohmann::json file = {
      {"model",
       {{"config",
         {{"model_type", "gpt2"},
          {"vocab_size", 256},
          {"n_positions", 32},
          {"n_embd", 16},
          {"n_layer", 2},
          {"n_head", 4}}}}},
      {"data", {{"train", folder.write("text.txt", text)}, {"tokenizer", "bytes"}, {"sequence_length", 16}}},
      {"training", {{"max_steps", 1}, {"use_cpu", true}}},
      {"runtime", {{"communicator", "threads"}, {"threads_per_rank", 1}}},
      {"output_dir", folder / "out"}};
  file.merge_patch(changes);
  return file;
}

// Trains as `shardline train` does once its config is read, and returns what rank 0 prints.
inline std::string train_in_process(const Config& config) {
  check_train(config);
  std::ostringstream out;
  run_on_ranks(config, out, {}, [&](RankContext& context) { train_job(config, context); });
  return out.str();
}

}  // namespace shardline
