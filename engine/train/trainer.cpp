#include "engine/train/trainer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <filesystem>

#include "core/comm/clock.h"
#include "core/device/accelerator.h"
#include "core/error.h"
#include "core/flight/flight_ring.h"
#include "core/memory/caching_allocator.h"
#include "engine/config/rules/learning_rate_rules.h"
#include "engine/config/rules/optimizer_rules.h"
#include "engine/config/rules/precision_rules.h"
#include "engine/observe/memory_usage.h"
#include "engine/plan/sharding.h"
#include "optim/update/gradient_norm.h"
#include "pipeline/schedule/kinds/schedule_generators.h"

namespace shardline {
namespace {

// Waiting for activations and gradients of other stages counts as bubble, not as communication.
double waited_for_messages(const std::vector<InstructionRecord>& records) {
  double waited = 0;
  for (const auto& record : records)
    if (record.instruction.op > Op::backward_weight) waited += record.waited;
  return waited;
}

}  // namespace

StageLayers build_stage(const TrainerParts& parts, StageParameters& parameters, bool trains) {
  StageLayers stage{.spec = &parts.model.spec, .layers_of_chunk = layers_of_chunks(parts.plan)};
  stage.layers.resize(parts.model.spec.layers.size());
  stage.t_degree = parts.plan.layout.tensor;
  stage.sequence_parallel = parts.plan.layout.sequence_parallel;
  stage.activations = at::TensorOptions().dtype(number_types(parts.config).borders).device(parts.device);
  stage.choices = {parts.plan.layout.recompute, parts.plan.layout.offload, parts.plan.layout.on_accelerators,
                   parts.model.spec.first_with_backward()};
  stage.choices.offload.enabled = trains && stage.choices.offload.enabled;
  stage.waits_for_device = parts.timed;
  stage.offload_directory = parts.config.smp.offload_path.value_or(parts.config.output_dir);
  if (stage.choices.offload.enabled && !parts.config.smp.offload_path) {
    // Commands that save nothing have not created output_dir, and a Trainer may have none.
    if (stage.offload_directory.empty()) stage.offload_directory = ".";
    std::error_code seen_when_the_file_is_made;
    std::filesystem::create_directories(stage.offload_directory, seen_when_the_file_is_made);
  }
  for (size_t i = 0; i < stage.layers.size(); ++i) {
    if (parts.plan.stage_of_layer[i] != parts.groups.coordinates.p) continue;
    const LayerSpec& spec = parts.model.spec.layers[i];
    const int index = i;
    stage.layers[i] = spec.build({.spec = &spec,
                                  .params = parameters.layer_params(index),
                                  .tp = parts.groups.tp.get(),
                                  .sequence_parallel = parts.plan.layout.sequence_parallel,
                                  .index = index,
                                  .half = half_options(parts.config)});
  }
  return stage;
}

RankTrainer::RankTrainer(const TrainerParts& parts, int64_t total_steps)
    : config_(parts.config),
      plan_(parts.plan),
      groups_(parts.groups),
      parameters_({.spec = parts.model.spec,
                   .stage_of_layer = parts.plan.stage_of_layer,
                   .groups = parts.groups,
                   .sharding = parts.plan.layout.sharding,
                   .values = at::TensorOptions().dtype(number_types(parts.config).values).device(parts.device),
                   .trains = total_steps > 0,
                   .host = states_on_host(parts.config.smp, is_accelerator(parts.device)) ? make_host_link(parts.device)
                                                                                          : nullptr}),
      stage_(build_stage(parts, parameters_, total_steps > 0)),
      executor_(stage_, *groups_.pp, parameters_) {
  if (total_steps == 0) return;
  if (precision_of(config_) == Precision::fp16) loss_scaler_.emplace(loss_scale_options(config_.training));
  optimizer_ = make_optimizer(optimizer_options(config_.training), parameters_);
  schedule_ = learning_rate_options(config_.training, total_steps);
  if (schedule_.type == RateSchedule::reduce_lr_on_plateau) plateau_rate_.emplace(plateau_options(config_.training));
}

std::optional<double> RankTrainer::observe_evaluation(double metric) {
  if (!plateau_rate_ || !plateau_rate_->observe(metric)) return {};
  return schedule_.peak * plateau_rate_->share();
}

std::optional<LossScaler::State> RankTrainer::loss_scaler_state() const {
  return loss_scaler_ ? std::optional(loss_scaler_->state()) : std::nullopt;
}

// A run in fp16 that continues from a run in another precision starts with its own scale.
void RankTrainer::set_loss_scaler_state(const std::optional<LossScaler::State>& state) {
  if (loss_scaler_ && state) loss_scaler_->set_state(*state);
}

std::optional<PlateauRate::State> RankTrainer::plateau_rate_state() const {
  return plateau_rate_ ? std::optional(plateau_rate_->state()) : std::nullopt;
}

// A run that continues from a run with another schedule starts from the peak.
void RankTrainer::set_plateau_rate_state(const std::optional<PlateauRate::State>& state) {
  if (plateau_rate_ && state) plateau_rate_->set_state(*state);
}

RankTrainer::BatchTotals RankTrainer::read_microbatches(BatchSource& data, int64_t step, int count,
                                                        std::vector<Microbatch>& microbatches) const {
  const Range mine = split_range(data.samples_in_step(step), groups_.mesh.d(), groups_.coordinates.d);
  const Batch batch = data.batch(step, {mine.begin, mine.length});
  check_batch(batch, *stage_.spec);
  const Microbatch whole = on_device(batch.rows, stage_.activations.device());
  for (int i = 0; i < count; ++i)
    microbatches.push_back(part_of(whole, batch.segments_of(split_range(mine.length, count, i))));
  return {.samples = batch.global_samples,
          .tokens = batch.tokens,
          .weight = stage_.spec->loss_of_samples ? batch.global_samples : batch.weight,
          .epoch = batch.epoch};
}

// The stage of the last chunk has the loss terms, equal on its T ranks. They are summed over microbatches and replicas,
// and every rank receives the sum.
LossTerm RankTrainer::total_loss(const RunResult& run) {
  LossTerm mine;
  for (const auto& loss : run.losses) {
    mine.sum += loss.sum;
    mine.weight += loss.weight;
  }
  const bool counts = groups_.coordinates.p == plan_.train.stage_of_chunk.back() && groups_.coordinates.t == 0;
  auto total = at::zeros({2}, at::kDouble);
  if (counts) total.copy_(at::tensor({mine.sum, mine.weight}, at::kDouble));
  groups_.world->all_reduce(total, {.what = "loss"})->wait();
  return {total[0].item<double>(), total[1].item<double>()};
}

LossTerm RankTrainer::accumulate_gradients(BatchSource& data, int64_t step) {
  // Every rank of a replica reads the replica's samples itself; only borders are sent.
  set_flight_instruction("reading the batch");
  std::vector<Microbatch> microbatches;
  last_batch_ = read_microbatches(data, step - 1, plan_.train.microbatches, microbatches);
  const int64_t weight = last_batch_.weight;
  if (weight == 0)
    throw DataError(cat("step ", step, ": the batch of ", last_batch_.samples,
                        " samples has no token to predict: all labels are ignored"));
  parameters_.zero_gradients();
  // Every rank runs its stage's list; gradients are reduced over the replicas during the backward pass.
  const uint64_t seed = config_.training.seed;
  last_run_ = executor_.run(plan_.train, microbatches,
                            {.mode = Mode::train,
                             .seed = seed,
                             .step = step,
                             .loss_scale = loss_scale() / weight,
                             .label_smoothing = config_.training.label_smoothing_factor,
                             .embedding_noise = config_.training.neftune_noise_alpha.value_or(0)});
  set_flight_instruction("finishing the gradients");
  parameters_.finish_gradients();
  gradients_complete_ = seconds_now();
  const LossTerm loss = total_loss(last_run_);
  SL_ASSERT(loss.weight == weight, "counted ", loss.weight, " tokens, expected ", weight);
  return loss;
}

// Waits for the accelerator only if the parts of a step are timed.
double RankTrainer::seconds_now() const {
  if (stage_.waits_for_device) wait_for_device(stage_.activations.device(), "the end of a timed part of a step");
  return steady_seconds();
}

StepMetrics RankTrainer::train_step(BatchSource& data, int64_t step) {
  const double waited = waited_seconds();
  step_start_ = steady_seconds();
  set_flight_step(step);
  const LossTerm loss = accumulate_gradients(data, step);
  // Each rank sums its share of the squares; all receive the same norm, and so agree on whether a gradient overflowed.
  // If that does not matter, the host need not know the norm before the update.
  set_flight_instruction("updating the weights");
  const double scale = loss_scale();
  GradientNorm gradient_norm(parameters_);
  const bool overflowed = loss_scaler_ && !std::isfinite(gradient_norm.value());
  const double rate =
      learning_rate(schedule_, optimizer_->updates() + 1) * (plateau_rate_ ? plateau_rate_->share() : 1);
  if (loss_scaler_) loss_scaler_->update(overflowed);
  if (!overflowed) {
    // Every rank updates its shards, or everything that it stores; ranks that keep more than a shard receive the rest
    // during the next forward pass. If states are on the host, gradients are copied there first.
    parameters_.bring_gradients();
    optimizer_->step(rate, gradient_norm.factor(scale, largest_norm(config_)));
    parameters_.publish_values();
  }
  trained_steps_ = step;
  const double norm = gradient_norm.value() / scale;
  set_flight_instruction("");
  take_records();  // the run is over, because the norm is known
  step_end_ = seconds_now();
  const double seconds = step_end_ - step_start_;
  const double exposed = waited_seconds() - waited - waited_for_messages(last_records_);

  StepMetrics metrics{.step = step,
                      .epoch = last_batch_.epoch,
                      .loss = loss.sum / loss.weight,
                      .grad_norm = norm,
                      .learning_rate = rate,
                      .step_seconds = seconds};
  if (loss_scaler_) metrics.loss_scale = {scale, overflowed};
  metrics.tokens = last_batch_.tokens;
  metrics.tokens_per_second = last_batch_.tokens / seconds;
  metrics.samples_per_second = last_batch_.samples / seconds;
  // Shares of all ranks' time between two optimizer barriers, which they do not leave at the same instant.
  auto times = at::tensor({busy_seconds(last_records_), exposed, seconds}, at::kDouble);
  groups_.world->all_reduce(times, {.what = "busy and waiting time"})->wait();
  times.div_(times[2].item<double>());
  metrics.bubble_fraction = 1 - times[0].item<double>();
  metrics.exposed_communication_fraction = times[1].item<double>();
  metrics.peak_memory_bytes = gather_memory();
  return metrics;
}

void RankTrainer::take_records() {
  if (auto fresh = executor_.take_records(); !fresh.empty()) last_records_ = std::move(fresh);
}

StepRecords RankTrainer::last_step() {
  take_records();
  return {.start = step_start_,
          .end = step_end_,
          .gradients_complete = gradients_complete_,
          .instructions = last_records_,
          .peak_activation_bytes = last_run_.peak_activation_bytes};
}

// The accelerator's memory; without one, this process's, whose counted part is 0 if another allocator is in use.
RankMemory RankTrainer::memory_of_rank() const {
  const at::Device device = stage_.activations.device();
  if (!is_accelerator(device)) return {memory_totals().peak_live, process_memory().peak_resident};
  const DeviceMemory memory = device_memory(device);
  return {memory.peak_active, memory.peak_reserved};
}

std::vector<RankMemory> RankTrainer::gather_memory() {
  const RankMemory mine = memory_of_rank();
  const auto all = gather_to_all(*groups_.world, at::tensor({mine.counted, mine.resident}, at::kLong));
  std::vector<RankMemory> memory;
  for (int rank = 0; rank < groups_.mesh.size(); ++rank)
    memory.push_back({all[rank][0].item<int64_t>(), all[rank][1].item<int64_t>()});
  return memory;
}

LossTerm RankTrainer::evaluate(BatchSource& data, int64_t steps, const UseLogits& use) {
  LossTerm total;
  int64_t samples = 0;
  for (int64_t step = 0; step < steps; ++step) {
    std::vector<Microbatch> microbatches;
    samples += read_microbatches(data, step, plan_.forward.microbatches, microbatches).samples;
    const RunResult run = executor_.run(plan_.forward, microbatches,
                                        {.mode = Mode::evaluate,
                                         .step = trained_steps_ + 1,
                                         .label_smoothing = config_.training.label_smoothing_factor,
                                         .predicts = use != nullptr});
    const LossTerm loss = total_loss(run);
    total.sum += loss.sum;
    total.weight += loss.weight;
    if (use) use(gather_logits(run));
  }
  if (total.weight == 0 && !use)
    throw DataError(cat("evaluation: the ", samples, " samples have no token to predict: all labels are ignored"));
  return total;
}

// The first T rank of each replica's last stage has the logits of the replica's samples, which follow those of the
// replicas before it.
at::Tensor RankTrainer::gather_logits(const RunResult& run) {
  const int last = plan_.train.stage_of_chunk.back();
  std::vector<at::Tensor> parts;
  for (int d = 0; d < groups_.mesh.d(); ++d) {
    const int root = groups_.mesh.rank({.d = d, .p = last, .t = 0});
    at::Tensor mine, sizes = at::zeros({2}, at::kLong);
    if (groups_.world->rank() == root) {
      std::vector<at::Tensor> outputs;
      for (const auto& output : run.outputs)
        if (output.defined() && output.size(0) > 0)  // a microbatch without wanted words may have other columns
          outputs.push_back(on_host(output, "logits of an evaluation").to(at::kDouble));
      mine = outputs.empty() ? at::zeros({0, 0}, at::kDouble) : at::cat(outputs).contiguous();
      sizes.copy_(at::tensor(mine.sizes(), at::kLong));
    }
    groups_.world->broadcast(sizes, root, {.what = "number of logits"})->wait();
    const int64_t rows = sizes[0].item<int64_t>();
    if (rows == 0) continue;
    if (!mine.defined()) mine = at::empty({rows, sizes[1].item<int64_t>()}, at::kDouble);
    groups_.world->broadcast(mine, root, {.what = "logits"})->wait();
    parts.push_back(mine);
  }
  return parts.empty() ? at::zeros({0, 0}, at::kDouble) : at::cat(parts);
}

at::Tensor RankTrainer::next_logits(const at::Tensor& ids, int64_t first_position,
                                    const std::vector<KvCache*>& caches) {
  return next_logits(causal_microbatch(on_device(ids, stage_.activations.device()), {}, {}, first_position), caches);
}

at::Tensor RankTrainer::next_logits(const Microbatch& rows, const std::vector<KvCache*>& caches) {
  const std::vector<Microbatch> batch = {on_device(rows, stage_.activations.device())};
  const auto& stage_of_chunk = plan_.train.stage_of_chunk;
  const auto run = executor_.run(forward_schedule(stage_of_chunk, plan_.layout.pipeline, 1), batch,
                                 {.mode = Mode::generate, .step = trained_steps_ + 1, .caches = caches});
  auto logits = groups_.coordinates.p == stage_of_chunk.back()
                    ? run.outputs[0].contiguous()
                    : at::empty({rows.segments(), stage_.spec->vocab_size},
                                stage_.activations.dtype(number_types(config_).exact));
  groups_.pp->broadcast(logits, stage_of_chunk.back(), {.what = "logits"})->wait();
  return logits;
}

bool RankTrainer::is_true_anywhere(bool mine) const {
  const at::Tensor count = at::full({}, int64_t{mine}, at::kLong);
  groups_.world->all_reduce(count, {.what = "a question to all ranks"})->wait();
  return count.item<int64_t>() > 0;
}

int64_t RankTrainer::of_first_rank(int64_t value) const {
  const at::Tensor number = at::full({}, value, at::kLong);
  groups_.world->broadcast(number, 0, {.what = "decision of the first rank"})->wait();
  return number.item<int64_t>();
}

}  // namespace shardline
