// Where checkpoints are saved, which one a run continues and which one is the best, by the keys of transformers'
// TrainingArguments.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "engine/config/keys/options.h"
#include "engine/config/rules/sizes.h"

namespace shardline {

struct ResumeSource {
  // newest: the newest checkpoint, which must exist; newest_or_fresh: the newest one, or as if there were no directory
  // of checkpoints: from `path`, or if that is empty, from the start.
  enum class Kind { fresh, newest, newest_or_fresh, path } kind = Kind::fresh;
  std::string path;
};
// training.resume_from_checkpoint; a bare name such as "checkpoint-500", which SageMaker's library calls a tag, is one
// in checkpoint_directory().
ResumeSource resume_source(const Config& config);

// training.checkpoint_dir, or else output_dir.
std::string checkpoint_directory(const Config& config);

// Throws ConfigError("RULE; ADVICE") if load_best_model_at_end is true and save_steps is not a multiple of eval_steps.
void check_evaluated_saves(const TrainingOptions& training, int64_t total_steps);

// The name of a value in metrics.jsonl by which evaluations are compared: "eval_loss".
std::string best_metric(const TrainingOptions& training);
bool larger_is_better(const TrainingOptions& training);  // unset: unless the metric is an error
// The metrics that evaluations may have, without "eval_".
std::vector<std::string> metric_names(const Config& config);
bool looks_for_best(const TrainingOptions& training);
bool compares_evaluations(const TrainingOptions& training);  // for that, or to stop early

void check_saving(const Config& config, const Complaint& complain);

}  // namespace shardline
