// What the commands do on one rank; every rank of the world calls the same function.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "engine/config/keys/options.h"
#include "engine/plan/machines.h"
#include "engine/run/ranks.h"

namespace shardline {

// Checks that need no ranks. They throw ConfigError, DataError, or RunError for a full disk; the jobs themselves make
// the same checks.
void check_train(const Config& config);
void check_evaluate(const Config& config);
void check_profile(const Config& config);

void train_job(const Config& config, RankContext& context);
void evaluate_job(const Config& config, RankContext& context);

// `shardline predict`: writes what the model predicts for each row of data.test (or data.validation), in the order of
// the data, one JSON object per line. path: the file to write; empty: output_dir/predictions.jsonl.
void check_predict(const Config& config, const std::string& path);
void predict_job(const Config& config, const std::string& path, RankContext& context);

struct GenerateOptions {
  std::vector<std::string> prompts;
  std::string prompts_file;  // a file with more prompts, one per line; the first rank reads it
  int64_t max_new_tokens = 64;
  double temperature = 1;  // 0: greedy
  int64_t top_k = 0;       // 0: all
  double top_p = 1;
  uint64_t seed = 42;
  bool json = false;  // one JSON object per prompt
};
void check_generate(const Config& config, const GenerateOptions& options);
void generate_job(const Config& config, const GenerateOptions& options, RankContext& context);

// `shardline profile`: times the model's distinct layers and the links between the ranks, unless the file has a profile
// that can be used. The config must not name one itself: its numbers would enter the plan that is measured. path: that
// file; empty: output_dir/profile.json.
void profile_job(const Config& config, const std::string& path, RankContext& context);

// `shardline check`: trains the first steps in float64 with the config's layout and in one process, from the same
// weights on the same data, and prints the largest differences. Throws RunError if one is more than rounding. The first
// rank needs memory for the whole model in addition to its part.
void check_layout(const Config& config);
void layout_job(const Config& config, int64_t steps, RankContext& context);

struct PlanOptions {
  bool json = false;
  bool instructions = false;  // include every instruction of the schedule in the JSON of a plan with a cluster
  int width = 80;             // columns
  std::string svg, html;      // not empty: files for a picture of the schedule, and for a page about the whole plan
  std::string search;         // not empty: "time", "cost" or "memory"
  std::string from_run;       // not empty: output_dir of a run of this config to compare the plan with
  Assumptions assumed;
  std::optional<Config> written;  // with "auto" where the config has a chosen value; unset: the config itself
};
// `shardline plan`: starts no ranks and reads no text. Throws what train would throw; see
// engine/commands/parts/run_checks.h. If the config names a cluster, the plan includes a forecast for it.
std::string plan_job(const Config& config, const PlanOptions& options);

// `shardline info`: versions, processors, GPUs and the links between them, and where ranks of `config` would compute.
std::string info_text(const std::optional<Config>& config, bool json);

// `shardline checkpoint inspect` and `verify`. path: a checkpoint or a part of one, or a directory with checkpoints, of
// which the newest is taken. Throws ConfigError if there is none, DataError if it is damaged.
std::string checkpoint_text(const std::string& path);
std::string verified_text(const std::string& path);
// `shardline checkpoint merge`: makes a complete checkpoint from one or more of its parts. Throws ConfigError if the
// output exists, DataError if the parts do not belong to one checkpoint or if pieces of it are missing or damaged.
std::string merge_checkpoint(const std::vector<std::string>& parts, const std::string& output);

// `shardline doctor`: what each rank of a training run is doing or was doing, and why the run ended or hangs. If
// another run was the last to begin its steps, first says the same about that run. Throws ConfigError if the run has no
// folder of records, RunError if that is empty, DataError if all records are damaged.
std::string doctor_text(const std::string& output_dir, bool json);

// A config for the model in `directory` on one rank, for eval, predict and generate, with the model's task.
Config config_of_directory(const std::string& directory, const std::vector<std::string>& overrides);

}  // namespace shardline
