// The checkpoints of a training run: from which one it continues, when it saves one, and which evaluation is the best.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint_saver.h"
#include "engine/checkpoint/stores.h"
#include "engine/checkpoint/trainer_state.h"
#include "engine/commands/parts/job_parts.h"
#include "engine/commands/parts/open_data.h"
#include "engine/observe/metrics.h"
#include "engine/run/run_records.h"

namespace shardline {

// The checkpoint from which a run continues.
struct ResumePoint {
  std::string path;  // an intact checkpoint, which is complete in all stores
  bool is_own;       // it belongs to the run, and so do the records before it
  TrainerState state;
};
// Collective over the world. Unset if the run starts from the beginning. Throws ConfigError if training asks for a
// checkpoint and there is none, DataError if the one that it names is damaged. Damaged ones that are skipped are
// reported to context.out. stores: those that hold the directory of checkpoints.
std::optional<ResumePoint> find_resume_point(const Config& config, const ModelSpec& spec, const Stores& stores,
                                             RankContext& context);

// Makes the checks that need no ranks. Throws ConfigError if the config asks for a checkpoint that does not exist. With
// several hosts, it may be on another one.
void check_resume(const Config& config);

// The settings that two runs must share for their evaluations to be comparable; empty if this run compares none.
nlohmann::json comparison_of_run(const Config& config, const EpochSource* validation, const EpochSource* mismatched);

// The settings of this run that determine its loss curve. comparison: comparison_of_run.
nlohmann::json curve_of_run(const Config& config, const JobParts& parts, const EpochSource& data, int64_t steps,
                            const nlohmann::json& comparison);

// Throws ConfigError if these differ from the checkpoint's, unless the config accepts that: resume_with_changes any
// difference, auto_find_batch_size a smaller batch. Reports accepted ones to context.out.
void check_curve(const ResumePoint& point, const nlohmann::json& curve, const Config& config,
                 const RankContext& context);

struct RunCheckpointsParts {
  const Config& config;
  const JobParts& job;
  RankContext& context;
  const Stores& stores;  // which ranks share the directory of checkpoints
  RankTrainer& trainer;
  const EpochSource& data;
  const EpochSource *validation, *mismatched;  // null: none
  RunSteps run;
  std::string resolved_config;  // text of config.resolved.json
};

class RunCheckpoints {
 public:
  // Collective over the world, as are all functions that are not const or observe a step.
  RunCheckpoints(const RunCheckpointsParts& parts, RunRecords& records);

  // Sets optimizer, loss scale, learning rate and history. Does not load the values of the parameters: these are loaded
  // as for any other model. The best evaluation so far is dropped, with a warning, if it cannot be compared with later
  // ones or has no checkpoint here.
  void continue_from(const ResumePoint& point);
  int64_t first_step() const { return state_.step + 1; }

  // Prepares everything that saving needs, so that problems are found before the first step.
  void prepare();

  void observe(const StepMetrics& metrics);
  // Also passes the metric to a learning rate that follows evaluations. Waits for the checkpoint of an earlier
  // evaluation that may be the best one.
  void observe(const EvaluationMetrics& metrics);
  // Whether early stopping ends training after the evaluations so far, including those before a resume.
  bool is_out_of_patience() const;
  std::string patience_text() const;  // "eval_loss has not improved in 3 evaluations; the best one had 0.5"

  // Starts a checkpoint after the last observed step if the config wants one there. evaluated: whether that step was
  // evaluated. ends: whether training ends after it.
  void save_if_due(bool evaluated, bool ends = false);
  // is_writing: whether this rank still writes to a checkpoint. Once no rank does, call proceed().
  bool is_pending() const { return saver_ && saver_->is_pending(); }
  bool is_writing() const { return saver_ && saver_->is_writing(); }
  void proceed();
  // Saves a checkpoint from which the run can continue now, unless there is one of this step, and completes everything.
  // Returns its directory. Throws RunError if it cannot be saved.
  std::string save_now();
  void finish();
  // The directory of the checkpoint with the best evaluation; empty if there is none, or if it is damaged, which is
  // reported.
  std::string best_checkpoint();

 private:
  void spend_patience();
  void follow_with_rate();
  void make_saver(bool with_states);
  void start();
  void start_saver(bool with_states);
  void report();
  void note_failure(const std::string& failure);
  void keep_best_of(const TrainerState& before);
  void settle_candidate();
  bool is_saved(int64_t step) const;

  RunCheckpointsParts parts_;
  RunRecords& records_;
  TrainerState state_;
  std::optional<double> newest_metric_;      // from the last evaluation
  std::optional<BestEvaluation> candidate_;  // better than state_.best, but not known to be saved
  int64_t started_ = -1, resumed_ = -1;      // steps of checkpoints
  int64_t reported_ = -1;                    // the last one that was reported as saved
  std::unique_ptr<CheckpointSaver> saver_;
  bool saves_states_ = false;  // whether saver_ saves the optimizer's states
};

}  // namespace shardline
