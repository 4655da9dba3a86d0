#include "engine/layer_times.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "core/error.h"
#include "core/layer.h"
#include "engine/data/repeated_batch.h"
#include "engine/op_recorder.h"
#include "engine/trainer.h"
#include "pipeline/schedule_builder.h"
#include "pipeline/schedule_generators.h"

namespace shardline {
namespace {

constexpr int kMicrobatches = 4, kWarmup = 1, kSteps = 3;

// One stage whose chunks are single layers, so that every instruction is a layer's.
Schedule layer_by_layer(int layers, bool split) {
  CellLists cells(1);
  for (int microbatch = 0; microbatch < kMicrobatches; ++microbatch) {
    for (int layer = 0; layer < layers; ++layer) cells[0].push_back({CellWork::forward, microbatch, layer});
    for (int layer = layers - 1; layer >= 0; --layer)
      if (!split) {
        cells[0].push_back({CellWork::backward, microbatch, layer});
      } else {
        cells[0].push_back({CellWork::backward_input, microbatch, layer});
        cells[0].push_back({CellWork::backward_weight, microbatch, layer});
      }
  }
  return build_schedule("layer by layer", std::vector<int>(static_cast<size_t>(layers), 0), kMicrobatches, cells);
}

// The plan of one tensor-parallel group that trains the distinct layers as if they were a model.
Plan measuring_plan(const Plan& plan, const ModelSpec& spec, bool split, bool recompute_core) {
  const auto layers = spec.layers.size();
  Plan own{.mesh = Mesh("cluster", 1, 1, plan.sizes.tensor), .sizes = plan.sizes};
  own.sizes.replicas = own.sizes.pipeline = own.sizes.accumulation_steps = 1;
  own.sizes.microbatches = kMicrobatches;
  own.sizes.replica_batch = own.sizes.global_batch = int64_t{kMicrobatches} * plan.sizes.microbatch_size;
  own.sequence_parallel = plan.sequence_parallel;
  own.train = layer_by_layer(static_cast<int>(layers), split);
  own.forward = forward_schedule(own.train.stage_of_chunk, 1, kMicrobatches);
  for (size_t layer = 0; layer < layers; ++layer) {
    own.layers.push_back(spec.layers[layer].name);
    own.chunk_of_layer.push_back(static_cast<int>(layer));
    own.stage_of_layer.push_back(0);
    const bool core = recompute_core && spec.layers[layer].is_block;
    own.activations.recompute.push_back({core ? Recompute::What::attention : Recompute::What::nothing});
  }
  return own;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Seconds by layer, and what a step spends outside of layers.
struct Times {
  std::vector<double> forward, backward_input, backward_weight;
  double before = 0, after = 0;
};

class Measurement {
 public:
  Measurement(const Config& config, const ModelSource& distinct, const Plan& plan, const RankGroups& groups,
              at::Device device)
      : plan_(plan),
        trainer_({config, plan_, distinct, groups, device}, kWarmup + kSteps + 1),
        data_(plan.sizes.global_batch, config.data.sequence_length, distinct.spec.vocab_size, 1234) {
    ModelOptions random = config.model;
    random.init = "random";
    fill_parameters(random, distinct, 1234, trainer_.parameters());
  }

  Times run() {
    for (int step = 0; step < kWarmup; ++step) trainer_.train_step(data_, ++step_);
    const auto layers = plan_.layers.size();
    std::vector<std::vector<double>> seconds[3];  // by op, by layer
    for (auto& of_op : seconds) of_op.resize(layers);
    std::vector<double> before, after;
    for (int step = 0; step < kSteps; ++step) {
      trainer_.train_step(data_, ++step_);
      const StepRecords records = trainer_.last_step();
      for (const auto& record : records.instructions)
        if (record.instruction.op <= Op::backward_weight)
          seconds[static_cast<size_t>(record.instruction.op)][static_cast<size_t>(record.instruction.chunk)].push_back(
              record.end - record.start);
      before.push_back(records.instructions.front().start - records.start);
      after.push_back(records.end - records.instructions.back().end);
    }
    Times times{.before = median(before), .after = median(after)};
    for (size_t layer = 0; layer < layers; ++layer) {
      times.forward.push_back(median(seconds[0][layer]));
      times.backward_input.push_back(median(seconds[1][layer]));
      times.backward_weight.push_back(median(seconds[2][layer]));
    }
    return times;
  }

  // Every op of one step, by layer: of its forwards, and of its backwards.
  void trace(std::vector<LayerMeasurement>& layers) {
    OpRecorder recorder;
    trainer_.train_step(data_, ++step_);
    for (const auto& record : trainer_.last_step().instructions) {
      if (record.instruction.op > Op::backward_weight || record.instruction.microbatch > 0) continue;
      auto& layer = layers[static_cast<size_t>(record.instruction.chunk)];
      auto& ops = record.instruction.op == Op::forward ? layer.forward_ops : layer.backward_ops;
      for (const auto& event : recorder.events())
        if (event.at >= record.start && event.at < record.end) count(ops, event);
    }
  }

  int64_t parameters() {
    int64_t elements = 0;
    for (const auto* parameter : trainer_.parameters().stored()) elements += parameter->value.numel();
    return elements;
  }
  int64_t parameters(int layer) {
    int64_t elements = 0;
    for (const auto* parameter : trainer_.parameters().layer_params(layer)) elements += parameter->value.numel();
    return elements;
  }

 private:
  static void count(std::vector<TracedOp>& ops, const OpRecorder::Event& event) {
    for (auto& op : ops)
      if (op.name == event.name && op.shapes == event.shapes) {
        ++op.calls;
        return;
      }
    ops.push_back({event.name, event.shapes, 1});
  }

  const Plan plan_;
  Trainer trainer_;
  RepeatedBatch data_;
  int64_t step_ = 0;
};

void average(Communicator& world, double& value) {
  auto tensor = at::tensor({value}, at::kDouble);
  world.all_reduce(tensor, {.what = "measured time"})->wait();
  value = tensor.item<double>() / world.size();
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
  const ModelSource distinct{model.hf_config, distinct_layers(model.spec), nullptr};
  const Coordinates at = plan.mesh.at(context.world->rank());
  const int group = at.d * plan.mesh.p() + at.p;
  const auto host = context.world->split(group, "tensor parallel group");
  const bool same = context.device_world == context.world;
  const auto device = same ? host : context.device_world->split(group, "tensor parallel group");
  const RankGroups groups = make_rank_groups(Mesh("cluster", 1, 1, plan.sizes.tensor), host, device);

  const auto measure = [&](bool split, bool recompute_core) {
    return Measurement(config, distinct, measuring_plan(plan, distinct.spec, split, recompute_core), groups,
                       context.device);
  };
  progress(0, 3);
  const Times split = measure(true, false).run();
  progress(1, 3);
  const Times core = measure(false, true).run();
  progress(2, 3);
  auto whole_measurement = measure(false, false);
  const Times whole = whole_measurement.run();

  const int64_t tokens = int64_t{plan.sizes.microbatch_size} * config.data.sequence_length;
  const int64_t rows = border_rows(tokens, plan.sizes.tensor, plan.sequence_parallel);
  for (size_t i = 0; i < distinct.spec.layers.size(); ++i) {
    const LayerSpec& layer = distinct.spec.layers[i];
    LayerMeasurement measured{.name = layer.name, .kind = layer_kind(layer)};
    measured.forward_seconds = whole.forward[i];
    measured.backward_seconds = whole.backward_input[i] + whole.backward_weight[i];
    measured.backward_input_seconds = split.backward_input[i];
    measured.backward_weight_seconds = split.backward_weight[i];
    measured.recompute_core_seconds =
        layer.is_block ? core.backward_input[i] + core.backward_weight[i] - measured.backward_seconds : 0;
    for (const auto& tensor : layer.output) {
      const auto shape = bind_shape(tensor, rows);
      measured.border_bytes += (config.runtime.dtype == "float64" ? 8 : 4) *
                               std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    }
    measured.parameters = whole_measurement.parameters(static_cast<int>(i));
    for (double* seconds :
         {&measured.forward_seconds, &measured.backward_seconds, &measured.backward_input_seconds,
          &measured.backward_weight_seconds, &measured.recompute_core_seconds})
      average(*context.world, *seconds);
    profile.layers.push_back(std::move(measured));
  }
  whole_measurement.trace(profile.layers);
  const auto elements = static_cast<double>(whole_measurement.parameters());
  profile.clear_seconds_per_element = whole.before / elements;
  profile.optimizer_seconds_per_element = whole.after / elements;
  average(*context.world, profile.clear_seconds_per_element);
  average(*context.world, profile.optimizer_seconds_per_element);
  progress(3, 3);
}

}  // namespace shardline
