// The training loop on one rank. Every rank of the mesh has a RankTrainer and calls the same functions in the same
// order.
#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "core/comm/rank_groups.h"
#include "engine/data/dataset/batch_source.h"
#include "engine/observe/metrics.h"
#include "engine/observe/timeline.h"
#include "engine/plan/plan.h"
#include "engine/run/model_source.h"
#include "optim/update/learning_rate.h"
#include "optim/update/loss_scaler.h"
#include "optim/update/optimizer.h"
#include "optim/update/plateau_rate.h"
#include "pipeline/run/executor.h"

namespace shardline {

struct TrainerParts {
  const Config& config;
  const Plan& plan;
  const ModelSource& model;
  const RankGroups& groups;
  at::Device device;
  bool timed = false;  // see StageLayers::waits_for_device
};

class RankTrainer {
 public:
  // Builds this rank's stage; its values are not set yet (see parameters()). total_steps: the length of the
  // learning-rate schedule; 0 for a model that only evaluates and has no gradients.
  RankTrainer(const TrainerParts& parts, int64_t total_steps);

  StageParameters& parameters() { return parameters_; }
  const ModelSpec& spec() const { return *stage_.spec; }
  int64_t evaluated_together() const { return config_.training.per_device_eval_batch_size; }  // samples

  // One optimizer step over the global batch of `step` (counted from 1). Collective over the world; every rank returns
  // the same numbers.
  StepMetrics train_step(BatchSource& data, int64_t step);
  // Computes only the gradients of a step: they are then complete on every rank, times loss_scale(). Returns the loss.
  LossTerm accumulate_gradients(BatchSource& data, int64_t step);
  double loss_scale() const { return loss_scaler_ ? loss_scaler_->scale() : 1; }
  // For lr_scheduler_type "reduce_lr_on_plateau", with equal metrics on all ranks: takes metric_for_best_model of the
  // next evaluation and returns the learning rate if this has reduced it.
  std::optional<double> observe_evaluation(double metric);
  // The state that steps change besides the parameters: the optimizer, which only a trainer that trains has, the loss
  // scale, which only fp16 has, and the learning rate that follows evaluations.
  Optimizer& optimizer() { return *optimizer_; }
  std::optional<LossScaler::State> loss_scaler_state() const;
  void set_loss_scaler_state(const std::optional<LossScaler::State>& state);
  std::optional<PlateauRate::State> plateau_rate_state() const;
  void set_plateau_rate_state(const std::optional<PlateauRate::State>& state);
  // The number of training steps so far: evaluations use the buffers that an exported program has after these steps.
  int64_t trained_steps() const { return trained_steps_; }
  void set_trained_steps(int64_t steps) { trained_steps_ = steps; }
  // The begin and end of the last train_step, the instructions of this rank in it, and the peak of its activations.
  StepRecords last_step();
  // The loss over `steps` global batches of `data`; its weight is above 0. Collective over the world. Throws DataError
  // if no row has a label. `use`, if set, is called on every rank with what the model predicts for each global batch:
  // the logits of its samples or rows in their order, in host memory (see Layer); batches may then be without labels.
  using UseLogits = std::function<void(const at::Tensor& logits)>;
  LossTerm evaluate(BatchSource& data, int64_t steps, const UseLogits& use = {});
  // Logits of the last position of ids [batch, length] in host memory, whose first column is at `first_position`:
  // [batch, vocabulary] on every rank of the replica, on its device. `caches`: by layer of the model, or empty.
  // Collective over the replica.
  at::Tensor next_logits(const at::Tensor& ids, int64_t first_position, const std::vector<KvCache*>& caches);
  // The same for the last row of each segment in host memory, [segments, vocabulary]. Targets must have one length.
  at::Tensor next_logits(const Microbatch& rows, const std::vector<KvCache*>& caches = {});
  // Whether `mine` is true on any rank. Collective over the world.
  bool is_true_anywhere(bool mine) const;
  // Returns the first rank's value, because different hosts could compute different ones. Collective over the world.
  int64_t of_first_rank(int64_t value) const;

 private:
  // Totals of a global batch.
  struct BatchTotals {
    int64_t samples = 0, tokens = 0;
    int64_t weight = 0;  // label tokens that count
    double epoch = 0;    // epochs completed after it
  };
  BatchTotals read_microbatches(BatchSource& data, int64_t step, int count,
                                std::vector<Microbatch>& microbatches) const;
  LossTerm total_loss(const RunResult& run);
  at::Tensor gather_logits(const RunResult& run);
  double seconds_now() const;
  void take_records();
  RankMemory memory_of_rank() const;
  std::vector<RankMemory> gather_memory();

  const Config& config_;
  const Plan& plan_;
  RankGroups groups_;
  StageParameters parameters_;
  StageLayers stage_;
  Executor executor_;
  std::unique_ptr<Optimizer> optimizer_;
  std::optional<LossScaler> loss_scaler_;  // set for fp16
  LearningRateOptions schedule_;
  std::optional<PlateauRate> plateau_rate_;  // set for a schedule that follows evaluations
  RunResult last_run_;
  std::vector<InstructionRecord> last_records_;
  BatchTotals last_batch_;
  int64_t trained_steps_ = 0;
  double step_start_ = 0, gradients_complete_ = 0, step_end_ = 0;  // steady_seconds() of the last step
};

// The layers of this rank's stage with their parameters, for the executor. trains: false if only forward passes run,
// which keep nothing that could be offloaded.
StageLayers build_stage(const TrainerParts& parts, StageParameters& parameters, bool trains);

}  // namespace shardline
