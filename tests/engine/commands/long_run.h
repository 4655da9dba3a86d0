// Training runs that save a checkpoint in the middle of an epoch, and runs that continue from it.
#pragma once
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/engine/tiny_run.h"

namespace shardline {

inline constexpr int kSteps = 20, kStop = 13;  // an epoch has 16 steps; the last batch is short

inline std::string file_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::vector<nlohmann::json> metrics_of(const std::string& directory) {
  std::vector<nlohmann::json> lines;
  std::ifstream file(directory + "/metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    auto record = nlohmann::json::parse(line);
    for (const char* timed : {"step_seconds", "tokens_per_second", "samples_per_second", "bubble_fraction",
                              "exposed_communication_fraction", "peak_memory_bytes"})
      record.erase(timed);
    lines.push_back(record);
  }
  return lines;
}

// Dropout, shuffled samples, a short batch at the end of the epoch, and a checkpoint in its middle.
inline nlohmann::json long_run(const RunFolder& folder, const std::string& output,
                               const nlohmann::json& changes = nlohmann::json::object()) {
  auto file = tiny_run(folder, {{"model", {{"config", {{"attn_pdrop", 0.1}, {"n_embd", 24}, {"n_head", 6}}}}},
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

inline std::string train(const nlohmann::json& file) {
  return train_in_process(parse_config(file.dump(), "run.json"));
}

inline nlohmann::json resumed(nlohmann::json file, const std::string& checkpoint, const std::string& output) {
  file["training"]["resume_from_checkpoint"] = checkpoint;
  file["output_dir"] = output;
  return file;
}

}  // namespace shardline
