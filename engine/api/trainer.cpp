#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>

#include <filesystem>
#include <optional>
#include <utility>

#include "core/error.h"
#include "engine/api/callers_source.h"
#include "engine/api/registry.h"
#include "engine/checkpoint/checkpoint_reader.h"
#include "engine/checkpoint/checkpoint_saver.h"
#include "engine/checkpoint/checkpoint_union.h"
#include "engine/commands/parts/job_parts.h"
#include "engine/config/config.h"
#include "engine/config/rules/optimizer_rules.h"
#include "engine/config/rules/precision_rules.h"
#include "engine/run/model_saver.h"
#include "engine/run/ranks.h"
#include "models/files/hf_layout.h"
#include "models/files/hf_writer.h"

namespace shardline {
namespace {

Config config_of(const std::string& config, std::vector<std::string> overrides) {
  overrides.push_back(cat("data.format=", word_of(DataFormat::memory)));
  const Config read = config.starts_with('{') ? parse_config(config, "the config of the Trainer", overrides)
                                              : read_config(config, overrides);
  if (read.training.max_steps < 1)
    throw ConfigError(
        "/training/max_steps: a Trainer needs the number of its steps, from which the learning-rate "
        "schedule follows; set it to 1 or more");
  if (read.training.lr_scheduler_type == RateSchedule::reduce_lr_on_plateau)
    throw ConfigError(
        "/training/lr_scheduler_type: \"reduce_lr_on_plateau\" follows the evaluations of `shardline train`; use "
        "another "
        "schedule in a Trainer");
  if (traits_of(read.task).head == HeadChoice::Kind::question_answering)
    throw ConfigError(
        "/task: a Trainer does not train question-answering, whose labels are positions in texts; train with "
        "`shardline train`");
  return read;
}

RankPlace place_of(const RankContext& context, const RankGroups& groups) {
  const Mesh& mesh = groups.mesh;
  const auto members = [&](Group group) { return mesh.members(group, groups.rank); };
  return {.rank = groups.rank,
          .size = mesh.size(),
          .replica = groups.coordinates.d,
          .stage = groups.coordinates.p,
          .t = groups.coordinates.t,
          .replicas = mesh.d(),
          .stages = mesh.p(),
          .t_degree = mesh.t(),
          .local_rank = context.local_rank,
          .local_size = context.local_size,
          .pipeline = members(Group::pp),
          .tensor = members(Group::tp),
          .replicated = members(Group::rdp),
          .replica_ranks = members(Group::mp)};
}

}  // namespace

struct Trainer::Parts {
  Parts(const std::string& config_text, const Options& options)
      : context(join_ranks(config_of(config_text, options.overrides), options.mpi_comm)),
        config(completed_config(config_of(config_text, options.overrides), *context.world, /*trains=*/true)),
        job(make_parts(config, context)),
        place(place_of(context, job.groups)),
        trainer({config, job.plan, job.model, job.groups, context.device}, config.training.max_steps) {
    load_parameters(config, job, trainer.parameters());
  }

  const ModelSpec& spec() const { return job.model.spec; }
  // The largest number of a replica's samples in a step, and in a pass of an evaluation.
  int64_t most_trained() const { return job.plan.layout.global_batch() / place.replicas; }
  int64_t most_evaluated() const { return job.plan.layout.microbatch_size * job.plan.forward.microbatches; }

  CallersSource evaluated(SampleTensors samples, bool labelled) const {
    samples.mistake = mistake_in(samples, job.model, labelled);
    return {samples, job.model, job.groups, 0, most_evaluated()};
  }

  StepReport train(SampleTensors samples) {
    samples = with_own_labels(samples);
    samples.mistake = mistake_in(samples, job.model, /*labelled=*/true);
    CallersSource source(samples, job.model, job.groups, step, most_trained());
    if (source.steps() > 1)
      throw AllRanks<DataError>(cat("step ", step + 1, ": each replica gave ", source.samples_of_replica(),
                                    " samples, but the config's global batch has ", most_trained(),
                                    " for each; give fewer, or set a larger training.global_batch_size"));
    const StepReport report = report_of(trainer.train_step(source, step + 1));
    ++step;
    for (const auto& callback : callbacks) callback(report);
    return report;
  }

  double evaluate(const SampleTensors& samples) {
    CallersSource source = evaluated(with_own_labels(samples), /*labelled=*/true);
    const LossTerm loss = trainer.evaluate(source, source.steps());
    return loss.sum / loss.weight;
  }

  at::Tensor predict(const SampleTensors& samples) {
    if (job.model.head.kind == HeadChoice::Kind::seq2seq_lm)
      throw AllRanks<RunError>(
          "predict: a Trainer cannot generate targets token by token; save the model, and use `shardline generate`");
    if (spec().predicts_next && job.model.has_caches())
      throw AllRanks<RunError>(
          "predict: a built-in language model does not keep the logits of all tokens; use evaluate for its loss, or "
          "save it and use `shardline generate`");
    SampleTensors inputs = samples;
    inputs.labels = inputs.targets = at::Tensor();
    CallersSource source = evaluated(inputs, /*labelled=*/false);
    std::vector<std::vector<at::Tensor>> of_replica(place.replicas);
    trainer.evaluate(source, source.steps(), [&](const at::Tensor& logits) {
      const int64_t rows = logits.size(0) / place.replicas;
      for (int d = 0; d < place.replicas; ++d) of_replica[d].push_back(logits.narrow(0, d * rows, rows));
    });
    std::vector<at::Tensor> all;
    for (const auto& parts : of_replica) all.insert(all.end(), parts.begin(), parts.end());
    return at::cat(all).contiguous();
  }

  // The labels of a language model are its ids.
  SampleTensors with_own_labels(SampleTensors samples) const {
    if (spec().predicts_next && !samples.labels.defined() && !samples.targets.defined()) samples.labels = samples.ids;
    return samples;
  }

  std::string save(const std::string& directory);
  void resume(const std::string& checkpoint);

  RankContext context;
  Config config;
  JobParts job;
  RankPlace place;
  RankTrainer trainer;
  int64_t step = 0;
  std::vector<StepCallback> callbacks;
};

std::string Trainer::Parts::save(const std::string& directory) {
  CheckpointSaverParts saved{.directory = directory,
                             .stores = find_stores(directory, *context.world),
                             .spec = spec(),
                             .parameters = trainer.parameters(),
                             .optimizer = &trainer.optimizer(),
                             .optimizer_options = optimizer_options(config.training),
                             .buffers = buffers_of(job.model)};
  std::map<std::string, std::string> files;
  if (context.first()) {
    saved.files = companions_of(job.model, tokenizer_source(config));
    saved.files[kConfigFile] = config_text(job.model.hf_config, number_types(config).exact);
    saved.files["config.resolved.json"] = resolved(config).dump(2);
    const TrainerState state{.step = step,
                             .total_steps = config.training.max_steps,
                             .updates = trainer.optimizer().updates(),
                             .loss_scaler = trainer.loss_scaler_state()};
    files[kTrainerStateFile] = trainer_state_text(state);
  }
  CheckpointSaver saver(std::move(saved));
  saver.start(step, std::move(files));
  saver.finish();
  const std::string failure = broadcast_string(*context.world, saver.take_failure(), 0);
  if (!failure.empty()) throw AllRanks<RunError>(failure);
  return file_in(directory, checkpoint_name(step));
}

void Trainer::Parts::resume(const std::string& checkpoint) {
  const std::string parent = std::filesystem::path(checkpoint).parent_path().string();
  const auto damage =
      complete_checkpoint(checkpoint, find_stores(parent.empty() ? "." : parent, *context.world), *context.world);
  if (!damage.empty()) throw AllRanks<DataError>(cat(checkpoint, " cannot be read: ", damage.front()));
  const TrainerState state = read_trainer_state(checkpoint);
  load_checkpoint_parameters(checkpoint, state.step, job, trainer.parameters());
  read_optimizer_state(checkpoint, trainer.parameters(), trainer.optimizer(), optimizer_options(config.training),
                       spec());
  trainer.optimizer().set_updates(state.updates);
  trainer.set_loss_scaler_state(state.loss_scaler);
  trainer.set_trained_steps(state.step);
  step = state.step;
}

Trainer::Trainer(const std::string& config, const Registry& registry, const Options& options) {
  use(registry);
  parts_ = std::make_unique<Parts>(config, options);
}
Trainer::Trainer(const std::string& config, const Registry& registry) : Trainer(config, registry, Options()) {}
Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

StepReport Trainer::step(const Samples& samples) {
  return parts_->train(tensors_of(samples, parts_->job.model));
}
StepReport Trainer::step(const at::Tensor& inputs) {
  return parts_->train(tensors_of(inputs, {}, parts_->job.model));
}
StepReport Trainer::step(const at::Tensor& inputs, const at::Tensor& labels) {
  return parts_->train(tensors_of(inputs, labels, parts_->job.model));
}
StepReport Trainer::step(const Columns& columns, const at::Tensor& labels) {
  return parts_->train(tensors_of(columns, labels, parts_->job.model));
}
int64_t Trainer::steps() const {
  return parts_->step;
}
void Trainer::after_step(StepCallback callback) {
  parts_->callbacks.push_back(std::move(callback));
}

double Trainer::evaluate(const Samples& samples) {
  return parts_->evaluate(tensors_of(samples, parts_->job.model));
}
double Trainer::evaluate(const at::Tensor& inputs, const at::Tensor& labels) {
  return parts_->evaluate(tensors_of(inputs, labels, parts_->job.model));
}
double Trainer::evaluate(const Columns& columns, const at::Tensor& labels) {
  return parts_->evaluate(tensors_of(columns, labels, parts_->job.model));
}
std::vector<double> Trainer::predict(const Samples& samples) {
  const at::Tensor outputs = parts_->predict(tensors_of(samples, parts_->job.model));
  const auto* values = outputs.const_data_ptr<double>();
  return {values, values + outputs.numel()};
}
at::Tensor Trainer::predict(const at::Tensor& inputs) {
  return parts_->predict(tensors_of(inputs, {}, parts_->job.model));
}

at::Tensor Trainer::predict(const Columns& columns) {
  return parts_->predict(tensors_of(columns, {}, parts_->job.model));
}

std::string Trainer::save(const std::string& directory) {
  return parts_->save(directory);
}
void Trainer::resume(const std::string& checkpoint) {
  parts_->resume(checkpoint);
}

const RankPlace& Trainer::place() const {
  return parts_->place;
}
std::string Trainer::plan() const {
  return plan_text(parts_->job.plan, 80);
}

}  // namespace shardline
