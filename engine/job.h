// What the commands do on one rank; every rank of the world calls the same function.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "engine/config/options.h"
#include "engine/ranks.h"

namespace shardline {

// What can be known to be wrong before ranks are started: ConfigError, DataError, or RunError for a full disk. The jobs
// themselves find the same.
void check_train(const Config& config);
void check_evaluate(const Config& config);
void check_profile(const Config& config);

void train_job(const Config& config, RankContext& context);
void evaluate_job(const Config& config, RankContext& context);

struct GenerateOptions {
  std::vector<std::string> prompts;
  int64_t max_new_tokens = 64;
  double temperature = 1;  // 0: greedy
  int64_t top_k = 0;       // 0: all
  double top_p = 1;
  uint64_t seed = 42;
  bool json = false;  // one JSON object per prompt
};
void check_generate(const Config& config, const GenerateOptions& options);
void generate_job(const Config& config, const GenerateOptions& options, RankContext& context);

// `shardline profile`: times the model's distinct layers and the links between the ranks, unless the file holds what
// can be used. path: of the file; empty: output_dir/profile.json.
void profile_job(const Config& config, const std::string& path, RankContext& context);

// `shardline plan`: no ranks, no data. `svg` not empty: a file for the schedule's picture.
std::string plan_job(const Config& config, bool json, int width, const std::string& svg = "");

// A config that means the model in `directory` on one rank, for eval and generate.
Config config_of_directory(const std::string& directory, const std::vector<std::string>& overrides);

}  // namespace shardline
