#include "engine/config/rules/saving_rules.h"

#include <cmath>

#include "core/error.h"
#include "engine/config/rules/checks.h"
#include "engine/config/rules/known_data.h"
#include "engine/config/rules/run_steps.h"

namespace shardline {
namespace {

void check_best(const Config& config, const Complaint& complain) {
  const TrainingOptions& t = config.training;
  const bool loads = t.load_best_model_at_end;
  const char* key = loads ? "training.load_best_model_at_end" : "training.save_strategy";
  const std::string what = loads ? "true" : "\"best\"";
  if (!loads && t.save_strategy != SaveStrategy::best) return;
  if (t.eval_strategy == EvalStrategy::no)
    return complain(key, what + " compares evaluations, but eval_strategy is \"no\"",
                    "set eval_strategy to \"steps\" or \"epoch\"");
  if (!loads || t.save_strategy == SaveStrategy::best) return;
  if (t.save_strategy == SaveStrategy::no)
    return complain(key, "true needs checkpoints, but save_strategy is \"no\"", "use \"best\", \"steps\" or \"epoch\"");
  if ((t.save_strategy == SaveStrategy::epoch) != (t.eval_strategy == EvalStrategy::epoch))
    return complain(key, "true needs an evaluation of each checkpoint, but save_strategy and eval_strategy differ",
                    "use the same for both");
  if (t.eval_strategy == EvalStrategy::steps && t.max_steps > 0 &&
      !evaluates_after(t, t.max_steps, {.total = t.max_steps}))
    return complain(
        key, cat(what, " compares evaluations, but eval_delay ", t.eval_delay, " is more than max_steps ", t.max_steps),
        "shorten eval_delay");
  const bool has_shares = t.save_steps < 1 || t.eval_steps.value_or(t.logging_steps) < 1;
  if (!has_shares || t.max_steps > 0)
    report_mistakes([&] { check_evaluated_saves(t, t.max_steps); },
                    [&](const std::string& rule, const std::string& advice) { complain(key, rule, advice); });
}

// torch's default of `mode` does not follow from the metric.
void check_plateau(const TrainingOptions& t, const Complaint& complain) {
  if (t.lr_scheduler_type != RateSchedule::reduce_lr_on_plateau) return;
  if (t.eval_strategy == EvalStrategy::no)
    return complain("training.lr_scheduler_type",
                    "\"reduce_lr_on_plateau\" follows evaluations, but eval_strategy is \"no\"",
                    "set eval_strategy to \"steps\" or \"epoch\"");
  const PlateauMode mode = t.lr_scheduler_kwargs.mode.value_or(PlateauOptions().mode);
  const PlateauMode wanted = larger_is_better(t) ? PlateauMode::max : PlateauMode::min;
  if (mode != wanted)
    complain("training.lr_scheduler_kwargs",
             cat("mode is \"", word_of(mode), "\", but ", larger_is_better(t) ? "larger" : "smaller", " values of ",
                 best_metric(t), " are better"),
             cat("set mode to \"", word_of(wanted), "\", or greater_is_better to ", !larger_is_better(t)));
}

// Throws ConfigError("RULE; ADVICE").
ResumeSource written_source(const TrainingOptions& training) {
  const auto& value = training.resume_from_checkpoint;
  if (value.is_null() || value == false) return {};
  if (value == true) return {ResumeSource::Kind::newest, ""};
  if (value == "auto") return {ResumeSource::Kind::newest_or_fresh, ""};
  if (value == "true" || value == "True")
    throw ConfigError(cat(value.dump(), " would name a directory; use true without quotes for the newest checkpoint"));
  if (value.is_string() && !value.get<std::string>().empty())
    return {ResumeSource::Kind::path, value.get<std::string>()};
  if (value.is_array() && value.size() == 2 && value[0] == "auto" && value[1].is_string() && value[1] != "")
    return {ResumeSource::Kind::newest_or_fresh, value[1].get<std::string>()};
  throw ConfigError(
      "must be true, \"auto\", the directory of a checkpoint, or [\"auto\", DIRECTORY]; leave it out to start from the "
      "beginning");
}

}  // namespace

void check_evaluated_saves(const TrainingOptions& t, int64_t total_steps) {
  if (!t.load_best_model_at_end || t.save_strategy != SaveStrategy::steps) return;
  const RunSteps run{.total = total_steps};
  const int64_t saves = save_steps(t, run), evaluations = eval_steps(t, run);
  if (saves % evaluations == 0) return;
  const auto share = [&](double steps) { return steps < 1 ? cat(" (", steps, " of ", total_steps, ")") : ""; };
  throw ConfigError(cat("true needs an evaluation of each checkpoint, but save_steps ", saves, share(t.save_steps),
                        " is not a multiple of eval_steps ", evaluations, share(t.eval_steps.value_or(t.logging_steps)),
                        "; use ", std::max<int64_t>(1, (saves + evaluations / 2) / evaluations) * evaluations));
}

ResumeSource resume_source(const Config& config) {
  ResumeSource source = written_source(config.training);
  const std::string prefix = "checkpoint-";
  if (source.path.starts_with(prefix) && source.path.size() > prefix.size() &&
      source.path.find_first_not_of("0123456789", prefix.size()) == std::string::npos)
    source.path = checkpoint_directory(config) + "/" + source.path;
  return source;
}

std::string checkpoint_directory(const Config& config) {
  return config.training.checkpoint_dir.value_or(config.output_dir);
}

std::string best_metric(const TrainingOptions& training) {
  const std::string name = training.metric_for_best_model.value_or("loss");
  return name.starts_with("eval_") ? name : "eval_" + name;
}

bool larger_is_better(const TrainingOptions& training) {
  const std::string metric = best_metric(training);
  const bool is_error =
      metric == "eval_loss" || metric == "eval_loss_mm" || metric == "eval_perplexity" || metric == "eval_mse";
  return training.greater_is_better.value_or(!is_error);
}

nlohmann::json comparison_settings(const Config& config, const std::string& data) {
  const TrainingOptions& training = config.training;
  nlohmann::json settings = {
      {"metric", best_metric(training)}, {"greater_is_better", larger_is_better(training)}, {"data", data}};
  const auto add = [&](const char* key, const auto& value, const auto& usual) {
    if (value != usual) settings[key] = value;
  };
  add("label_smoothing_factor", training.label_smoothing_factor, 0.0);
  const DataOptions usual, &own = config.data;
  if (config.task == kMaskedLm) {
    add("mlm_probability", own.mlm_probability, usual.mlm_probability);
    add("whole_word_mask", own.whole_word_mask, usual.whole_word_mask);
  }
  if (config.task == kQuestionAnswering) {
    add("n_best_size", own.n_best_size, usual.n_best_size);
    add("max_answer_length", own.max_answer_length, usual.max_answer_length);
    add("version_2_with_negative", own.version_2_with_negative, usual.version_2_with_negative);
    add("null_score_diff_threshold", own.null_score_diff_threshold, usual.null_score_diff_threshold);
  }
  return settings;
}

namespace {

const std::vector<std::string> kOfClasses = {"accuracy", "f1", "matthews_correlation"};
const std::vector<std::string> kOfLabelSets = {"accuracy", "f1"};
const std::vector<std::string> kOfNumbers = {"mse", "pearson", "spearmanr"};

void complain_about_metric(const std::string& metric, const std::vector<std::string>& names,
                           const Complaint& complain) {
  if (std::ranges::find(names, metric.substr(5)) != names.end()) return;
  std::string known;
  for (const auto& name : names) known += cat(known.empty() ? "\"" : ", \"", name, '"');
  complain("training.metric_for_best_model",
           cat("must name a metric of the evaluation; there is none called \"", metric, '"'), "use one of " + known);
}

}  // namespace

std::vector<std::string> metric_names(const Config& config, const std::optional<HeadChoice::Problem>& problem) {
  using Problem = HeadChoice::Problem;
  const TaskTraits& task = traits_of(config.task);
  std::vector<std::string> names = task.metrics;
  if (config.task == kSequenceClassification && problem)
    names = *problem == Problem::regression ? kOfNumbers : *problem == Problem::multi_label ? kOfLabelSets : kOfClasses;
  if (config.task == kQuestionAnswering)
    std::erase_if(names, [&](const std::string& name) {
      const bool is_of_either = name == "f1";
      return !is_of_either && (name == "exact_match") == config.data.version_2_with_negative;
    });
  if (const auto name = config.data.task_name) {
    names = known_data(*name).metrics;
    if (names.size() > 1) names.push_back("combined_score");
    if (!mismatched_paths(config.data).empty()) names.insert(names.end(), {"loss_mm", "accuracy_mm"});
  }
  names.insert(names.begin(), "loss");
  names.insert(names.end(), task.added_metrics.begin(), task.added_metrics.end());
  return names;
}

bool looks_for_best(const TrainingOptions& training) {
  return training.load_best_model_at_end || training.save_strategy == SaveStrategy::best;
}

bool compares_evaluations(const TrainingOptions& training) {
  return looks_for_best(training) || training.early_stopping_patience ||
         training.lr_scheduler_type == RateSchedule::reduce_lr_on_plateau;
}

void check_best_metric(const Config& config, const HeadChoice& head) {
  if (!compares_evaluations(config.training)) return;
  complain_about_metric(best_metric(config.training), metric_names(config, head.problem),
                        [](const std::string& key, const std::string& rule, const std::string& advice) {
                          std::string pointer = "/" + key;
                          std::ranges::replace(pointer, '.', '/');
                          throw ConfigError(cat(pointer, ": ", rule, "; ", advice));
                        });
}

void check_saving(const Config& config, const Complaint& complain) {
  const TrainingOptions& t = config.training;
  report_mistakes([&] { written_source(t); },
                  [&](const std::string& rule, const std::string& advice) {
                    complain("training.resume_from_checkpoint", rule, advice);
                  });
  const auto check_steps = [&](const char* key, double steps) {
    if (steps > 1 && steps != std::floor(steps))
      complain(key, "must be a whole number of steps, or a share below 1", cat("use ", std::floor(steps)));
  };
  check_steps("training.save_steps", t.save_steps);
  check_steps("training.logging_steps", t.logging_steps);
  if (t.eval_steps) check_steps("training.eval_steps", *t.eval_steps);
  complain_about_metric(best_metric(t), metric_names(config), complain);
  if (config.mpi.max_restarts > 0 && (t.save_strategy == SaveStrategy::no || t.save_only_model))
    complain("mpi_options.max_restarts", "needs checkpoints from which a run can continue",
             t.save_only_model ? "set training.save_only_model to false" : "set training.save_strategy to \"steps\"");
  check_best(config, complain);
  check_plateau(t, complain);
}

}  // namespace shardline
