#include "engine/profile/layer_times.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "core/enum_array.h"
#include "core/error.h"
#include "core/model/layer.h"
#include "engine/config/rules/precision_rules.h"
#include "engine/data/dataset/repeated_batch.h"
#include "engine/profile/op_recorder.h"
#include "engine/run/median.h"
#include "engine/train/trainer.h"
#include "models/program/program_inputs.h"
#include "pipeline/schedule/kinds/schedule_generators.h"
#include "pipeline/schedule/schedule_builder.h"

namespace shardline {
namespace {

constexpr int kMicrobatches = 2, kWarmup = 1;
constexpr int64_t kDataSeed = 1234;

// Random tokens, with something to predict for the model's head.
RepeatedBatch repeated_batch(int64_t samples, int64_t length, const ModelSource& model) {
  const RepeatedBatch tokens(samples, length, model.spec.vocab_size, kDataSeed);
  Microbatch rows = tokens.whole();
  if (model.exported) rows.columns = zero_columns(*model.exported->program, samples);
  const auto zeros = [](std::vector<int64_t> sizes, at::ScalarType type = at::kLong) { return at::zeros(sizes, type); };
  const HeadChoice& head = model.head;
  switch (head.kind) {
    case HeadChoice::Kind::causal_lm:
      return tokens;
    case HeadChoice::Kind::masked_lm: {
      const int64_t labelled = std::max<int64_t>(1, std::llround(head.labelled_share * rows.tokens()));
      rows.labels = at::full({rows.tokens()}, kNoLabel, at::kLong);
      rows.labels.narrow(0, 0, labelled).zero_();
      return {rows, labelled};
    }
    case HeadChoice::Kind::token_classification:
      rows.labels = zeros({rows.tokens()});
      return {rows, rows.tokens()};
    case HeadChoice::Kind::seq2seq_lm: {
      const int64_t source = model.exported ? model.exported->program->fixed_source() : 0;
      const int64_t target = source > 0 ? length - source : length / 2;
      for (const int64_t end : rows.ends) rows.target_begins.push_back(end - target);
      rows.labels = rows.ids.masked_fill(rows.positions < length - target, kNoLabel);
      return {rows, samples * target};
    }
    case HeadChoice::Kind::question_answering:
      rows.targets = zeros({samples, 2});
      break;
    case HeadChoice::Kind::sequence_classification:
      if (head.problem == HeadChoice::Problem::single_label)
        rows.targets = zeros({samples});
      else
        rows.targets = head.labels == 1 ? zeros({samples}, at::kFloat) : zeros({samples, head.labels}, at::kFloat);
  }
  rows.labels = at::Tensor();
  return {rows, samples};
}

// A schedule of one stage whose chunks are single layers, so that every instruction runs one layer.
Schedule layer_by_layer(int layers, bool split) {
  CellLists cells(1);
  for (int microbatch = 0; microbatch < kMicrobatches; ++microbatch) {
    for (int layer = 0; layer < layers; ++layer) cells[0].push_back({CellWork::forward, microbatch, layer});
    for (int layer = layers - 1; !split && layer >= 0; --layer)
      cells[0].push_back({CellWork::backward, microbatch, layer});
    for (int layer = layers - 1; split && layer >= 0; --layer)
      cells[0].push_back({CellWork::backward_input, microbatch, layer});
    for (int layer = layers - 1; split && layer >= 0; --layer)
      cells[0].push_back({CellWork::backward_weight, microbatch, layer});
  }
  return build_schedule("layer by layer", std::vector<int>(layers, 0), kMicrobatches, cells);
}

// A plan of one tensor-parallel group that trains the distinct layers as if they were a model.
Plan measuring_plan(const Plan& plan, const ModelSpec& spec, bool split, bool recompute_core) {
  const auto layers = spec.layers.size();
  Plan own{.workload = plan.workload, .layout = {.tensor = plan.layout.tensor}};
  own.workload.spec = spec;
  own.layout.microbatch_size = plan.layout.microbatch_size;
  own.layout.microbatches = kMicrobatches;
  own.layout.sequence_parallel = plan.layout.sequence_parallel;
  own.workload.global_batch = own.layout.global_batch();
  if (recompute_core) own.layout.recompute = recompute_blocks(spec, Recompute::What::attention);
  own.train = layer_by_layer(layers, split);
  own.forward = forward_schedule(own.train.stage_of_chunk, 1, kMicrobatches);
  for (size_t layer = 0; layer < layers; ++layer) {
    own.chunk_of_layer.push_back(layer);
    own.stage_of_layer.push_back(0);
  }
  return own;
}

int64_t elements_of(const std::vector<Parameter*>& parameters, Counted counted) {
  int64_t elements = 0;
  for (const auto* parameter : parameters)
    if (counted == Counted::all || parameter->spec->trainable) elements += parameter->value.numel();
  return elements;
}

// Median seconds by layer, and of the other parts of a step.
struct Times {
  std::vector<double> forward, backward_input, backward_weight;
  double before = 0, join = 0, update = 0;

  double backward(size_t layer) const { return backward_input[layer] + backward_weight[layer]; }
};

// The run's config with a loss scale with which synthetic data do not overflow: an overflow would skip the update.
Config measuring_config(Config config) {
  config.training.dynamic_loss_scale = false;
  config.training.static_loss_scale.reset();
  config.training.dynamic_loss_args.reset();
  return config;
}

// Trains the distinct layers.
class Measurement {
 public:
  Measurement(const Config& config, const ModelSource& distinct, Plan plan, const RankGroups& groups, at::Device device,
              Communicator& world, int steps)
      : config_(measuring_config(config)),
        plan_(std::move(plan)),
        trainer_({config_, plan_, distinct, groups, device, true}, kWarmup + steps + 1),
        data_(repeated_batch(plan_.layout.global_batch(), config.data.sequence_length, distinct)),
        world_(world),
        steps_(steps) {
    ModelOptions random = config.model;
    random.init = ModelInit::random;
    fill_parameters(random, distinct, kDataSeed, trainer_.parameters());
  }

  Times run() {
    for (int i = 0; i < kWarmup; ++i) step();
    EnumArray<Op, std::vector<std::vector<double>>, 3> seconds;  // by op, by layer
    for (auto& of_op : seconds.elements) of_op.resize(plan_.workload.spec.layers.size());
    std::vector<double> before, join, update;
    for (int i = 0; i < steps_; ++i) {
      const StepRecords records = step();
      for (const auto& record : records.instructions)
        if (computes(record.instruction.op))
          seconds[record.instruction.op][record.instruction.chunk].push_back(record.end - record.start);
      before.push_back(records.instructions.front().start - records.start);
      join.push_back(records.gradients_complete - records.instructions.back().end);
      update.push_back(records.end - records.gradients_complete);
    }
    Times times{.before = median(before), .join = median(join), .update = median(update)};
    for (size_t layer = 0; layer < plan_.workload.spec.layers.size(); ++layer) {
      times.forward.push_back(median(seconds[Op::forward][layer]));
      times.backward_input.push_back(median(seconds[Op::backward_input][layer]));
      times.backward_weight.push_back(median(seconds[Op::backward_weight][layer]));
    }
    return times;
  }

  // Records ops, FLOPs and kept bytes of one microbatch in an additional step.
  void trace(std::vector<LayerMeasurement>& layers) {
    const OpRecorder recorder;
    const auto records = step().instructions;
    for (size_t i = 0; i < records.size(); ++i) {
      const auto& [op, microbatch, chunk, peer] = records[i].instruction;
      if (!computes(records[i].instruction.op) || microbatch > 0) continue;
      auto& layer = layers[chunk];
      const bool forward = op == Op::forward;
      if (forward) layer.kept_bytes = records[i].activation_bytes - (i > 0 ? records[i - 1].activation_bytes : 0);
      for (const auto& event : recorder.events()) {
        if (event.seconds < records[i].start || event.seconds >= records[i].end) continue;
        add(forward ? layer.forward_ops : layer.backward_ops, event);
        (forward ? layer.forward_flops : layer.backward_flops) += flops_of(event);
      }
    }
  }

  int64_t layer_elements(int layer) { return elements_of(trainer_.parameters().layer_params(layer), Counted::all); }
  int64_t stored_elements() { return elements_of(trainer_.parameters().stored(), Counted::trained); }
  int64_t gradient_elements() {
    int64_t elements = 0;
    for (int layer = 0; layer < std::ssize(plan_.workload.spec.layers); ++layer)
      elements += elements_of(trainer_.parameters().layer_params(layer), Counted::trained);
    return elements;
  }

 private:
  // All ranks of the world begin together, because those of one host share memory bandwidth.
  StepRecords step() {
    world_.barrier();
    const auto metrics = trainer_.train_step(data_, ++step_);
    if (metrics.loss_scale && metrics.loss_scale->overflowed)
      throw RunError(
          "the gradients of random weights overflow fp16 even without a loss scale, so no update can be "
          "timed; use bf16, or a smaller model.config.initializer_range");
    return trainer_.last_step();
  }

  static void add(std::vector<TracedOp>& ops, const OpRecorder::Event& event) {
    const auto same = [&](const TracedOp& op) { return op.name == event.name && op.shapes == event.shapes; };
    auto found = std::find_if(ops.begin(), ops.end(), same);
    if (found == ops.end()) found = ops.insert(ops.end(), {event.name, event.shapes, 0, 0});
    ++found->calls;
    found->flops += flops_of(event);
  }

  const Config config_;
  const Plan plan_;
  RankTrainer trainer_;
  RepeatedBatch data_;
  Communicator& world_;
  const int steps_;
  int64_t step_ = 0;
};

int64_t border_bytes_of(const LayerSpec& layer, int64_t rows, int64_t element_bytes) {
  int64_t bytes = 0;
  for (const auto& tensor : layer.output) {
    const auto shape = bind_shape(tensor, rows);
    bytes += element_bytes * std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  }
  return bytes;
}

void average(Communicator& world, double& value) {
  auto tensor = at::tensor({value}, at::kDouble);
  world.all_reduce(tensor, {.what = "measured time"})->wait();
  value = tensor.item<double>() / world.size();
}

double per_element(Communicator& world, double seconds, int64_t elements) {
  if (elements == 0) return 0;
  double result = seconds / elements;
  average(world, result);
  return result;
}

}  // namespace

ModelSpec distinct_layers(const ModelSpec& spec) {
  ModelSpec distinct = spec;
  distinct.layers.clear();
  std::set<std::string> seen;
  for (const auto& layer : spec.layers)
    if (seen.insert(layer_kind(layer)).second) distinct.layers.push_back(layer);
  return distinct;
}

void measure_layers(const Config& config, const Plan& plan, const ModelSource& model, const RankContext& context,
                    Profile& profile, const std::function<void(int64_t, int64_t)>& progress) {
  const ModelSource distinct{.hf_config = model.hf_config,
                             .head = model.head,
                             .spec = distinct_layers(model.spec),
                             .directory = nullptr,
                             .exported = model.exported};
  const int group = plan.layout.mesh().members(Group::tp, context.world->rank()).front();
  const auto host = context.world->split(group, "tp to be measured");
  const auto device =
      context.device_world == context.world ? host : context.device_world->split(group, "tp to be measured");
  const RankGroups groups = make_rank_groups(Layout{.tensor = plan.layout.tensor}.mesh(), host, device);
  const auto measurement = [&](bool split, bool recompute_core, int steps) {
    return Measurement(config, distinct, measuring_plan(plan, distinct.spec, split, recompute_core), groups,
                       context.device, *context.world, steps);
  };

  progress(0, 3);
  const Times split = measurement(true, false, 2).run();
  progress(1, 3);
  const Times core = measurement(false, true, 2).run();
  progress(2, 3);
  auto ordinary = measurement(false, false, 4);
  const Times times = ordinary.run();

  const int64_t tokens = int64_t{plan.layout.microbatch_size} * config.data.sequence_length;
  const int64_t rows = border_rows(tokens, plan.layout.tensor, plan.layout.sequence_parallel);
  for (size_t i = 0; i < distinct.spec.layers.size(); ++i) {
    const LayerSpec& layer = distinct.spec.layers[i];
    LayerMeasurement measured{.name = layer.name, .kind = layer_kind(layer)};
    measured.forward_seconds = times.forward[i];
    measured.backward_seconds = times.backward(i);
    measured.backward_input_seconds = split.backward_input[i];
    measured.backward_weight_seconds = split.backward_weight[i];
    measured.recompute_core_seconds = layer.is_block ? core.backward(i) - times.backward(i) : 0;
    measured.border_bytes = border_bytes_of(layer, rows, width_of(number_types(config).borders));
    measured.parameters = ordinary.layer_elements(i);
    for (double* seconds : {&measured.forward_seconds, &measured.backward_seconds, &measured.backward_input_seconds,
                            &measured.backward_weight_seconds, &measured.recompute_core_seconds})
      average(*context.world, *seconds);
    measured.recompute_core_seconds = std::max(0.0, measured.recompute_core_seconds);  // smaller than the noise
    profile.layers.push_back(std::move(measured));
  }
  ordinary.trace(profile.layers);
  const int64_t stored = ordinary.stored_elements(), gradients = ordinary.gradient_elements();
  profile.clear_seconds_per_gradient = per_element(*context.world, times.before, gradients);
  profile.join_seconds_per_gradient = per_element(*context.world, times.join, gradients - stored);
  profile.optimizer_seconds_per_stored = per_element(*context.world, times.update, stored);
  progress(3, 3);
}

}  // namespace shardline
