#include "engine/commands/parts/run_checkpoints.h"

#include <cmath>
#include <filesystem>
#include <ostream>

#include "core/error.h"
#include "core/plain_text.h"
#include "engine/checkpoint/checkpoint_reader.h"
#include "engine/checkpoint/checkpoint_union.h"
#include "engine/checkpoint/curve_settings.h"
#include "engine/config/rules/optimizer_rules.h"
#include "engine/config/rules/precision_rules.h"
#include "engine/config/rules/run_steps.h"
#include "engine/config/rules/saving_rules.h"
#include "engine/run/launcher_news.h"
#include "engine/run/memory_room.h"
#include "engine/run/model_saver.h"
#include "engine/run/output_dir.h"
#include "models/files/hf_layout.h"
#include "models/files/hf_writer.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string no_checkpoint(const std::string& directory) {
  return cat("/training/resume_from_checkpoint: ", directory,
             " has no checkpoint; use \"auto\" to start from the beginning in this case, or name a checkpoint");
}

std::string no_usable(const std::string& directory, const NewestCheckpoint& found) {
  return cat(directory,
             found.has_some ? " has checkpoints, but none from which the run can continue: "
                            : " has no checkpoint that shardline has saved: ",
             found.skipped.front());
}

// Where a run that has no checkpoint of its own starts.
std::string start_text(const ResumeSource& source) {
  return "from " + (source.path.empty() ? "the beginning" : source.path);
}

// The checkpoint that a path names, or a part of it.
std::string named_checkpoint(const std::string& path) {
  const std::string name = fs::path(path).has_filename() ? path : fs::path(path).parent_path().string();
  return checkpoint_of_part(name).value_or(name);
}

std::string no_checkpoint_at(const std::string& path, const std::string& directory) {
  std::error_code ignored;
  const auto inside = checkpoints_in(path);
  const std::string problem = !inside.empty()             ? "contains checkpoints but is not one itself"
                              : fs::exists(path, ignored) ? cat("has no ", kManifestFile)
                                                          : "does not exist";
  const std::string example = inside.empty()
                                  ? "the directory of a checkpoint, such as " + file_in(directory, checkpoint_name(500))
                                  : inside.front().path.string();
  return cat("/training/resume_from_checkpoint: ", path, " ", problem, "; name ", example);
}

// Collective: completes the checkpoint at `path` in all stores, or throws.
void complete_named(const std::string& path, const Config& config, const Stores& stores, Communicator& world) {
  bool is_there = false;
  for (const auto& places : gather_strings(world, cat(places_of(path).size()))) is_there |= places != "0";
  if (!is_there) throw AllRanks<ConfigError>(no_checkpoint_at(path, checkpoint_directory(config)));
  const std::string directory = fs::path(path).parent_path().string();
  const bool is_known = directory == fs::path(checkpoint_directory(config));
  std::string lines;
  for (const auto& line :
       complete_checkpoint(path, is_known ? stores : find_stores(directory.empty() ? "." : directory, world), world))
    lines += "\n  " + line;
  if (!lines.empty()) throw AllRanks<DataError>(cat(path, " is damaged; resume from another checkpoint:", lines));
}

// Evaluations without the metric could never improve; for example, "NoAns_exact" is missing if every question has an
// answer.
AllRanks<RunError> missing_metric(const std::string& name, const EvaluationMetrics& metrics) {
  std::string known;
  for (const auto& [metric, value] : metrics.values) known += cat(known.empty() ? "\"" : ", \"", metric, '"');
  return AllRanks<RunError>(
      cat("/training/metric_for_best_model: the evaluation has no \"", name, "\"; use one of ", known));
}

bool is_better(const TrainingOptions& training, double metric, double than) {
  return larger_is_better(training) ? metric > than : metric < than;
}

// Files of a checkpoint that do not change during a run.
std::map<std::string, std::string> files_of_all(const RunCheckpointsParts& parts) {
  auto files = companions_of(parts.job.model, tokenizer_source(parts.config));
  files[kConfigFile] = config_text(parts.job.model.hf_config, number_types(parts.config).exact);
  files["config.resolved.json"] = parts.resolved_config;
  return files;
}

}  // namespace

void check_resume(const Config& config) {
  if (used_hosts(config) > 1) return;
  const ResumeSource source = resume_source(config);
  const std::string directory = checkpoint_directory(config);
  if (source.kind == ResumeSource::Kind::newest && checkpoints_in(directory).empty() && strangers_in(directory).empty())
    throw ConfigError(no_checkpoint(directory));
  const bool needs_path =
      source.kind == ResumeSource::Kind::path ||
      (!source.path.empty() && checkpoints_in(directory).empty() && strangers_in(directory).empty());
  if (needs_path && places_of(named_checkpoint(source.path)).empty())
    throw ConfigError(no_checkpoint_at(source.path, directory));
}

std::optional<ResumePoint> find_resume_point(const Config& config, const ModelSpec& spec, const Stores& stores,
                                             RankContext& context) {
  const ResumeSource source = resume_source(config);
  if (source.kind == ResumeSource::Kind::fresh) return {};
  std::optional<std::string> path;
  bool is_own = continues_in_place(config);
  if (source.kind != ResumeSource::Kind::path) {
    const std::string directory = checkpoint_directory(config);
    const CheckpointContents wanted(spec, number_types(config).exact, optimizer_options(config.training));
    const NewestCheckpoint found =
        complete_newest_checkpoint(directory, stores, *context.world, /*needs_states=*/wanted.has_states());
    path = found.path;
    if (context.out)
      for (const auto& line : found.skipped) *context.out << "warning: " << line << std::endl;
    if (!path && source.kind == ResumeSource::Kind::newest)
      throw AllRanks<ConfigError>(found.skipped.empty()
                                      ? no_checkpoint(directory)
                                      : cat("/training/resume_from_checkpoint: ", no_usable(directory, found)));
    if (!path && !found.skipped.empty() && !found.first_was_cut_off)
      throw AllRanks<DataError>(cat(no_usable(directory, found), "; to start ", start_text(source), ", move ",
                                    found.skipped.size() == 1 ? "it" : "them", " elsewhere or use another directory"));
    if (!path && context.out && found.skipped.empty())
      *context.out << "note: " << directory << " has no checkpoint, so the run starts "
                   << (source.path.empty() ? "with step 1" : start_text(source)) << std::endl;
    if (!path && context.out && !found.skipped.empty())
      *context.out << "note: the run starts " << start_text(source)
                   << ": an earlier attempt ended before its first checkpoint in " << directory
                   << " was complete on all hosts" << std::endl;
  }
  if (!path && !source.path.empty()) {
    path = named_checkpoint(source.path);
    complete_named(*path, config, stores, *context.world);
    is_own = is_in_place(config, *path);
  }
  if (!path) return {};
  return ResumePoint{*path, is_own, with_plain_errors([&] { return read_trainer_state(*path); })};
}

json comparison_of_run(const Config& config, const EpochSource* validation, const EpochSource* mismatched) {
  if (!compares_evaluations(config.training)) return json::object();
  const EpochSource* compared = best_metric(config.training).ends_with("_mm") ? mismatched : validation;
  return comparison_settings(config, compared ? compared->digest() : "");
}

json curve_of_run(const Config& config, const JobParts& parts, const EpochSource& data, int64_t steps,
                  const json& comparison) {
  const Layout& layout = parts.plan.layout;
  const auto& exported = parts.model.exported;
  return curve_settings(config, {.global_batch = layout.global_batch(),
                                 .loader_batches = layout.loader_batches,
                                 .total_steps = steps,
                                 .data = data.digest(),
                                 .model_config = parts.model.hf_config,
                                 .program = exported ? graph_digest(exported->program->archive) : "",
                                 .comparison = comparison});
}

void check_curve(const ResumePoint& point, const json& curve, const Config& config, const RankContext& context) {
  const json& before = point.state.curve;
  const std::string differences = plain_text(curve_differences(before, curve), '\n');
  if (differences.empty()) return;
  const auto differs = [&](const char* key) { return before.contains(key) && before.at(key) != curve.at(key); };
  if (differs("/training/optim"))
    throw AllRanks<ConfigError>(
        cat("/training/optim: ", point.path, " has the state of another optimizer:\n", differences,
            "\nchange it back, or start a new run from the weights by setting model.path to ", point.path));
  const TrainingOptions& training = config.training;
  const bool steps_follow = training.max_steps <= 0 && point.state.num_train_epochs == training.num_train_epochs;
  const bool is_found = training.auto_find_batch_size && has_only_smaller_batch(before, curve, steps_follow);
  if (!training.resume_with_changes && !is_found)
    throw AllRanks<ConfigError>(
        cat("/training/resume_from_checkpoint: the run would not continue the loss curve of ", point.path,
            ", because these settings differ:\n", differences,
            "\nchange them back, or set training.resume_with_changes to true to continue with the new ones"));
  if (context.out)
    *context.out << "note: the run continues from " << point.path << " with changes:\n"
                 << differences
                 << (differs(kGlobalBatchSetting)
                         ? "\nThe position in the data follows from the step and the batch size, so samples are "
                           "skipped or repeated."
                         : "")
                 << std::endl;
}

RunCheckpoints::RunCheckpoints(const RunCheckpointsParts& parts, RunRecords& records)
    : parts_(parts), records_(records) {
  const Config& config = parts.config;
  const TrainingOptions& training = config.training;
  const Layout& layout = parts.job.plan.layout;
  try {
    check_evaluated_saves(training, parts.run.total);  // a share of the steps is known only now
    if (training.load_best_model_at_end && !evaluates_after(training, parts.run.total, parts.run))
      throw ConfigError(cat("true compares evaluations, but eval_delay ", training.eval_delay,
                            " is longer than the run of ", parts.run.total, " steps; shorten eval_delay"));
  } catch (const ConfigError& error) {
    throw AllRanks<ConfigError>(cat("/training/load_best_model_at_end: ", error.what()));
  }
  if (training.lr_scheduler_type == RateSchedule::reduce_lr_on_plateau &&
      !ever_evaluates_regularly(training, parts.run))
    throw AllRanks<ConfigError>(
        cat("/training/lr_scheduler_type: \"reduce_lr_on_plateau\" follows evaluations, but with eval_delay ",
            training.eval_delay, " and this eval_strategy the run of ", parts.run.total,
            " steps has none that the rate could follow; shorten eval_delay or eval_steps"));
  state_.total_steps = parts.run.total;
  state_.best_of = comparison_of_run(config, parts.validation, parts.mismatched);
  state_.curve = curve_of_run(config, parts.job, parts.data, parts.run.total, state_.best_of);
  state_.logging_steps = logging_steps(training, parts.run);
  state_.eval_steps = eval_steps(training, parts.run);
  state_.save_steps = save_steps(training, parts.run);
  state_.train_batch_size = layout.microbatch_size * layout.microbatches / layout.loader_batches;
  state_.num_train_epochs = training.num_train_epochs;
}

// Throws RunError if hosts lack the memory. Removes an earlier saver first, because it holds as much memory.
void RunCheckpoints::make_saver(bool with_states) {
  if (saver_ && saves_states_ == with_states) return;
  saver_.reset();
  CheckpointSaverParts parts{.directory = checkpoint_directory(parts_.config),
                             .stores = parts_.stores,
                             .on_each_store = parts_.config.training.save_on_each_node,
                             .spec = parts_.job.model.spec,
                             .parameters = parts_.trainer.parameters(),
                             .buffers = buffers_of(parts_.job.model),
                             .keep = parts_.config.training.save_total_limit.value_or(0)};
  if (with_states) {
    parts.optimizer = &parts_.trainer.optimizer();
    parts.optimizer_options = optimizer_options(parts_.config.training);
  }
  if (parts_.context.first()) {
    parts.files = files_of_all(parts_);
    parts.sync_records = records_.sync_function();
  }
  auto saver = std::make_unique<CheckpointSaver>(std::move(parts));
  Communicator& world = *parts_.context.world;
  std::vector<double> bytes;  // by rank
  for (const auto& text : gather_strings(world, cat(saver->memory_bytes()))) bytes.push_back(std::stod(text));
  check_snapshot_room(gather_host_rooms(world, parts_.context.host_of), bytes);
  // The first rank's disk was checked before the ranks started.
  if (saver->leads() && !parts_.context.first()) check_checkpoint_room(parts_.config, saver->store_bytes());
  saver_ = std::move(saver);
  saves_states_ = with_states;
}

void RunCheckpoints::continue_from(const ResumePoint& point) {
  RankTrainer& trainer = parts_.trainer;
  read_optimizer_state(point.path, trainer.parameters(), trainer.optimizer(), optimizer_options(parts_.config.training),
                       parts_.job.model.spec);
  trainer.optimizer().set_updates(point.state.updates);
  trainer.set_loss_scaler_state(point.state.loss_scaler);
  trainer.set_trained_steps(point.state.step);
  const TrainerState now = state_;
  state_ = point.state;
  state_.best_of = now.best_of;
  state_.total_steps = now.total_steps;
  state_.curve = now.curve;
  state_.logging_steps = now.logging_steps;
  state_.eval_steps = now.eval_steps;
  state_.save_steps = now.save_steps;
  state_.train_batch_size = now.train_batch_size;
  state_.num_train_epochs = now.num_train_epochs;
  const bool is_comparable = point.state.best_of.empty() || point.state.best_of == now.best_of;
  if (!is_comparable || !parts_.config.training.early_stopping_patience) state_.patience.reset();
  if (state_.plateau_rate && !is_comparable) state_.plateau_rate = {.share = state_.plateau_rate->share};
  trainer.set_plateau_rate_state(state_.plateau_rate);
  started_ = state_.step;
  if (point.is_own) resumed_ = reported_ = state_.step;
  keep_best_of(point.state);
}

void RunCheckpoints::keep_best_of(const TrainerState& before) {
  if (!before.best || !looks_for_best(parts_.config.training)) return;
  const std::string name = checkpoint_name(before.best->step), directory = checkpoint_directory(parts_.config);
  const std::string is_here =
      parts_.stores.leads(parts_.context.world->rank()) && resumed_ >= 0 && !places_of(file_in(directory, name)).empty()
          ? "yes"
          : "";
  bool is_anywhere = false;
  for (const auto& answer : gather_strings(*parts_.context.world, is_here)) is_anywhere |= !answer.empty();
  const bool is_comparable = before.best_of.empty() || before.best_of == state_.best_of;
  if (is_anywhere && is_comparable) return;
  state_.best.reset();
  if (!parts_.context.out) return;
  *parts_.context.out << "warning: the best evaluation so far, after step " << before.best->step
                      << ", no longer counts, because "
                      << (is_comparable ? cat(directory, " has no ", name)
                                        : cat("evaluations are now compared by ", state_.best_of.dump(),
                                              " and were compared by ", plain_text(before.best_of.dump())))
                      << std::endl;
}

void RunCheckpoints::observe(const StepMetrics& metrics) {
  state_.step = metrics.step;
  state_.epoch = metrics.epoch;
  state_.tokens += metrics.tokens;
  state_.samples += parts_.data.samples_in_step(metrics.step - 1);
  state_.logged_loss += metrics.loss;
  ++state_.logged_steps;
  newest_metric_.reset();
  if (!logs_after(parts_.config.training, metrics.step, parts_.run)) return;
  const auto finite = [](double value) { return std::isfinite(value) ? json(value) : json(nullptr); };
  state_.log_history.push_back({{"epoch", metrics.epoch},
                                {"grad_norm", finite(metrics.grad_norm)},
                                {"learning_rate", metrics.learning_rate},
                                {"loss", finite(state_.logged_loss / state_.logged_steps)},
                                {"step", metrics.step}});
  state_.logged_loss = 0;
  state_.logged_steps = 0;
}

void RunCheckpoints::observe(const EvaluationMetrics& metrics) {
  json entry = {{"epoch", metrics.epoch}, {"step", metrics.step}};
  const TrainingOptions& training = parts_.config.training;
  for (const auto& [name, value] : metrics.values) {
    entry[name] = std::isfinite(value) ? json(value) : json(nullptr);
    if (name == best_metric(training)) newest_metric_ = value;
  }
  if (!newest_metric_ && compares_evaluations(training)) throw missing_metric(best_metric(training), metrics);
  state_.log_history.push_back(std::move(entry));
  if (newest_metric_ && metrics.step > 0) {  // transformers' callback and scheduler also ignore an evaluation before
                                             // training
    if (training.early_stopping_patience) spend_patience();
    if (evaluates_regularly(training, metrics.step, parts_.run)) follow_with_rate();
  }
  if (!looks_for_best(training) || !newest_metric_ || !std::isfinite(*newest_metric_) || metrics.step == 0) return;
  // Only an evaluation with a checkpoint can be the best one.
  if (training.save_strategy != SaveStrategy::best && !saves_after(training, metrics.step, parts_.run)) return;
  settle_candidate();
  const double metric = *newest_metric_;
  if (state_.best && !is_better(training, metric, state_.best->metric)) return;
  candidate_ = {metric, metrics.step, file_in(checkpoint_directory(parts_.config), checkpoint_name(metrics.step))};
}

// As EarlyStoppingCallback of transformers does: a gain that is too small does not count, but the next one is measured
// from it. An evaluation whose metric is not a finite number counts as one without a gain, even if it
// is the first one.
void RunCheckpoints::spend_patience() {
  const TrainingOptions& training = parts_.config.training;
  const double metric = *newest_metric_;
  if (!state_.patience) state_.patience.emplace();
  auto& [best, spent] = *state_.patience;
  const bool better = std::isfinite(metric) && (!best || is_better(training, metric, *best));
  const bool is_gain = better && (!best || std::abs(metric - *best) > training.early_stopping_threshold);
  spent = is_gain ? 0 : spent + 1;
  if (better) best = metric;
}

void RunCheckpoints::follow_with_rate() {
  const auto rate = parts_.trainer.observe_evaluation(*newest_metric_);
  if (rate && parts_.context.first())
    records_.note(cat(best_metric(parts_.config.training), " has stopped improving: learning rate ", *rate));
}

bool RunCheckpoints::is_out_of_patience() const {
  const auto most = parts_.config.training.early_stopping_patience;
  return most && state_.patience && state_.patience->spent >= *most;
}

std::string RunCheckpoints::patience_text() const {
  const TrainingOptions& training = parts_.config.training;
  return cat(best_metric(training), " has not improved",
             training.early_stopping_threshold > 0 ? cat(" by more than ", training.early_stopping_threshold) : "",
             " in ", state_.patience->spent, state_.patience->spent == 1 ? " evaluation" : " evaluations",
             state_.patience->best ? cat("; the best one had ", *state_.patience->best)
                                   : ", all of which gave a value that is not a number");
}

// The candidate becomes the best evaluation once its checkpoint is on the disk. Until then, the earlier best one is
// kept.
void RunCheckpoints::settle_candidate() {
  if (!candidate_) return;
  finish();
  if (is_saved(candidate_->step)) state_.best = candidate_;
  candidate_.reset();
}

bool RunCheckpoints::is_saved(int64_t step) const {
  const bool here = resumed_ == step || (parts_.context.first() && saver_ && saver_->last_saved() == step);
  return broadcast_string(*parts_.context.world, here ? "yes" : "no", 0) == "yes";
}

void RunCheckpoints::save_if_due(bool evaluated, bool ends) {
  const TrainingOptions& training = parts_.config.training;
  const SaveStrategy strategy = training.save_strategy;
  const bool due = strategy == SaveStrategy::best
                       ? evaluated && candidate_ && candidate_->step == state_.step
                       : saves_after(training, state_.step, parts_.run) || (ends && strategy != SaveStrategy::no);
  if (due && started_ != state_.step) start();
}

void RunCheckpoints::start() {
  start_saver(!parts_.config.training.save_only_model);
  report();
}

void RunCheckpoints::start_saver(bool with_states) {
  if (candidate_ && candidate_->step != state_.step) settle_candidate();  // while the saver that saved it exists
  make_saver(with_states);
  state_.updates = parts_.trainer.optimizer().updates();
  state_.loss_scaler = parts_.trainer.loss_scaler_state();
  state_.plateau_rate = parts_.trainer.plateau_rate_state();
  TrainerState state = state_;
  if (candidate_) state.best = candidate_;  // the best evaluation once this checkpoint exists
  std::map<std::string, std::string> files;
  if (parts_.context.first()) files[kTrainerStateFile] = trainer_state_text(state);
  saver_->start(state.step, std::move(files), state.best ? state.best->step : -1);
  started_ = state_.step;
}

void RunCheckpoints::prepare() {
  const TrainingOptions& training = parts_.config.training;
  if (training.save_strategy != SaveStrategy::no) make_saver(!training.save_only_model);
}

// Reports that a checkpoint is complete, or that one could not be saved.
void RunCheckpoints::report() {
  if (parts_.context.first() && saver_->last_saved() > reported_) {
    reported_ = saver_->last_saved();
    records_.note(cat("saved ", file_in(checkpoint_directory(parts_.config), checkpoint_name(reported_))));
    tell_launcher(News::saved);
  }
  if (const std::string failure = saver_->take_failure(); !failure.empty()) note_failure(failure);
}

void RunCheckpoints::note_failure(const std::string& failure) {
  records_.attempt(
      "checkpoints", [&] { throw RunError(failure); }, RunRecords::Shown::each);
}

void RunCheckpoints::proceed() {
  saver_->proceed();
  report();
}

void RunCheckpoints::finish() {
  if (!saver_) return;
  saver_->finish(records_.show("writing the checkpoint"));
  report();
}

std::string RunCheckpoints::save_now() {
  finish();
  const std::string path = file_in(checkpoint_directory(parts_.config), checkpoint_name(state_.step));
  if (is_saved(state_.step) && (resumed_ == state_.step || saves_states_)) return path;
  start_saver(true);  // a run cannot continue without the optimizer's state, even if save_only_model leaves it out
  saver_->finish(records_.show("writing the checkpoint"));
  const std::string failure = broadcast_string(*parts_.context.world, saver_->take_failure(), 0);
  if (!is_saved(state_.step)) throw AllRanks<RunError>(failure.empty() ? path + " was not saved" : failure);
  if (!failure.empty() && parts_.context.first()) note_failure(failure);
  return path;
}

std::string RunCheckpoints::best_checkpoint() {
  settle_candidate();
  if (!state_.best) return "";
  const std::string path = file_in(checkpoint_directory(parts_.config), checkpoint_name(state_.best->step));
  const auto damage =
      complete_checkpoint(path, parts_.stores, *parts_.context.world, records_.show("verifying the best model"));
  if (damage.empty()) return path;
  records_.attempt("the best model", [&] {
    throw RunError(cat(path, " cannot be read, so the last weights become the final model: ", damage.front()));
  });
  return "";
}

}  // namespace shardline
