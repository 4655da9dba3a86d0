// Where checkpoints are saved, which one a run continues and which one is the best, according to the keys of
// transformers' TrainingArguments.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/keys/options.h"
#include "engine/config/rules/sizes.h"
#include "models/families/head_choice.h"

namespace shardline {

struct ResumeSource {
  // newest: the newest checkpoint, which must exist. newest_or_fresh: the newest one if there is one; otherwise, the
  // run starts from `path` or, if that is empty, from the beginning.
  enum class Kind { fresh, newest, newest_or_fresh, path } kind = Kind::fresh;
  std::string path;
};
// training.resume_from_checkpoint; a bare name such as "checkpoint-500", which SageMaker's library calls a tag, stands
// for a checkpoint in checkpoint_directory().
ResumeSource resume_source(const Config& config);

// training.checkpoint_dir, or else output_dir.
std::string checkpoint_directory(const Config& config);

// Throws ConfigError("RULE; ADVICE") if load_best_model_at_end is true and save_steps is not a multiple of eval_steps.
void check_evaluated_saves(const TrainingOptions& training, int64_t total_steps);

// The name of a value in metrics.jsonl by which evaluations are compared: "eval_loss".
std::string best_metric(const TrainingOptions& training);
bool larger_is_better(const TrainingOptions& training);  // if greater_is_better is unset: true, unless the metric is an
                                                         // error
// The metrics that evaluations may have, without "eval_". problem: the kind of sequence classification; unset: not
// known yet.
std::vector<std::string> metric_names(const Config& config,
                                      const std::optional<HeadChoice::Problem>& problem = std::nullopt);
// The settings that two runs must share for their evaluations to be comparable. data: digest of the evaluated data.
nlohmann::json comparison_settings(const Config& config, const std::string& data);
bool looks_for_best(const TrainingOptions& training);
// Whether evaluations are compared: to find the best one, to stop early, or to adapt the learning rate.
bool compares_evaluations(const TrainingOptions& training);

void check_saving(const Config& config, const Complaint& complain);
// Throws ConfigError if evaluations are compared by a metric that a model with this head does not have. The labels of
// the data determine the head, so that check_saving cannot know it.
void check_best_metric(const Config& config, const HeadChoice& head);

}  // namespace shardline
