#include "tests/engine/parity_run.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "core/error.h"
#include "core/local_communicator.h"
#include "core/parameter_init.h"
#include "core/philox.h"
#include "core/threads_communicator.h"
#include "engine/config/config.h"
#include "engine/trainer.h"
#include "models/families.h"
#include "optim/gradient_norm.h"

namespace shardline::parity {
namespace {

using nlohmann::json;

// Batches of uniformly random tokens: sample i of step k is the same in every layout.
class RandomSource : public BatchSource {
 public:
  explicit RandomSource(const Point& point) : point_(point) {}
  int64_t samples_in_step(int64_t step) const override {
    return point_.short_batch && step % 2 == 0 ? point_.global_batch / 2 - 1 : point_.global_batch;
  }
  Batch batch(int64_t step, const BatchSlice& slice) override {
    Batch batch{.first_sample = slice.first, .global_samples = samples_in_step(step)};
    batch.ids = at::empty({slice.count, point_.sequence}, at::kLong);
    for (int64_t i = 0; i < slice.count; ++i)
      for (int64_t j = 0; j < point_.sequence; ++j)
        batch.ids[i][j] = static_cast<int64_t>(
            random_word({.seed = 99, .op = 7, .step = static_cast<uint32_t>(step), .sample = static_cast<uint32_t>(slice.first + i)},
                        static_cast<uint64_t>(j)) % static_cast<uint32_t>(point_.vocab));
    batch.labels = batch.ids;
    batch.weight = batch.global_samples * (point_.sequence - 1);
    return batch;
  }

 private:
  const Point& point_;
};

json hf_config(const Point& point) {
  const double p = point.dropout ? 0.1 : 0.0;
  json config = {{"model_type", "gpt2"}, {"n_layer", point.layers}, {"n_head", point.heads}, {"n_embd", point.hidden},
                 {"vocab_size", point.vocab}, {"n_positions", 40}, {"resid_pdrop", p}, {"embd_pdrop", p},
                 {"attn_pdrop", p}, {"tie_word_embeddings", point.tied}, {"initializer_range", 0.2}};
  if (point.inner) config["n_inner"] = point.inner;
  return config;
}

Config run_config(const Point& point) {
  const json file = {
      {"model", {{"config", hf_config(point)}}},
      {"data", {{"train", "unused"}, {"tokenizer", "bytes"}, {"sequence_length", point.sequence}}},
      {"training", {{"global_batch_size", point.global_batch}, {"gradient_accumulation_steps", point.accumulation},
                    {"learning_rate", 1e-3}, {"lr_scheduler_type", "constant"}, {"weight_decay", 0.1},
                    {"max_grad_norm", 1.0}, {"seed", 1234}}},
      {"smp_options", {{"pipeline_parallel_degree", point.p}, {"tensor_parallel_degree", point.t},
                       {"microbatches", point.microbatches}, {"pipeline", point.pipeline},
                       {"optimize", point.optimize}, {"placement_strategy", point.placement}}},
      {"mpi_options", {{"processes_per_host", point.world()}}},
      {"runtime", {{"dtype", point.dtype}, {"communicator", point.world() == 1 ? "local" : "threads"}}},
      {"output_dir", "unused"}};
  return parse_config(file.dump(), "parity point " + point.name());
}

// Each rank's slice in its place of a whole tensor, added over the ranks that write it.
std::map<std::string, at::Tensor> whole(StageParameters& parameters, const ModelSpec& spec, bool gradients) {
  std::map<std::string, at::Tensor> result;
  const auto& groups = parameters.groups();
  std::map<std::string, const Parameter*> mine;
  for (const auto* parameter : parameters.stored())
    if (parameters.writes(*parameter)) mine[parameter->name] = parameter;
  for (const auto& layer : spec.layers)
    for (const auto& param : layer.params) {
      if (!param.tied_to.empty()) continue;
      auto tensor = at::zeros(param.shape, at::kDouble);
      if (const auto found = mine.find(layer.full_name(param)); found != mine.end()) {
        const Range range = param.split(groups.at.t, groups.mesh.t());
        auto slice = param.split_dim < 0 ? tensor : tensor.narrow(param.split_dim, range.begin, range.length);
        slice.copy_(gradients ? found->second->grad : found->second->value);
      }
      groups.world->all_reduce(tensor)->wait();
      result[layer.full_name(param)] = tensor;
    }
  return result;
}

}  // namespace

std::string Point::name() const {
  return cat("D", d, " P", p, " T", t, " ", optimize, " ", pipeline, " ", placement, " ", dtype, " m", microbatches, " a",
             accumulation, dropout ? " dropout" : "", tied ? "" : " untied", short_batch ? " short" : "", " l", layers,
             " h", heads, " v", vocab);
}

std::string Point::reference_key() const {
  return cat(dtype, dropout, tied, short_batch, " ", layers, " ", heads, " ", vocab, " ", hidden, " ", inner, " ", sequence,
             " ", global_batch);
}

Outcome run_point_on(const Point& point, int steps, const CommunicatorPtr& world) {
  const Config config = run_config(point);
  const bool sequence_parallel = point.optimize == "memory" && point.t > 1;
  const ModelSource model{hf_config(point), model_spec(hf_config(point), "parity", sequence_parallel)};
  const Plan plan = make_plan(config, model.spec, world->size());
  Trainer trainer({config, plan, model, make_rank_groups(plan.mesh, world), at::kCPU}, steps);
  fill_parameters(config.model, model, 1234, trainer.parameters());

  RandomSource data(point);
  Outcome outcome;
  outcome.before = whole(trainer.parameters(), model.spec, false);
  trainer.accumulate_gradients(data, 1);
  outcome.gradients = whole(trainer.parameters(), model.spec, true);
  for (int step = 1; step <= steps; ++step) {
    const StepMetrics metrics = trainer.train_step(data, step);
    outcome.losses.push_back(metrics.loss);
    if (step == 1) outcome.norm = metrics.grad_norm;
  }
  outcome.after = whole(trainer.parameters(), model.spec, false);
  return outcome;
}

Outcome run_point(const Point& point, int steps) {
  Outcome outcome;
  std::mutex mutex;
  run_ranks(point.world(), [&](CommunicatorPtr world) {
    Outcome mine = run_point_on(point, steps, world);
    if (world->rank() != 0) return;
    std::scoped_lock lock(mutex);
    outcome = std::move(mine);
  });
  return outcome;
}

Difference compare(const Outcome& outcome, const Outcome& reference) {
  Difference worst;
  std::map<std::string, double> layer_largest;
  const auto layer_of = [](const std::string& name) { return name.substr(0, name.find('.', name.find('.') + 1)); };
  for (const auto& [name, gradient] : reference.gradients) {
    auto& largest = layer_largest[layer_of(name)];
    largest = std::max(largest, gradient.abs().max().item<double>());
  }
  for (const auto& [name, gradient] : reference.gradients) {
    double largest = gradient.abs().max().item<double>();
    if (largest < 1e-9 * layer_largest[layer_of(name)]) largest = layer_largest[layer_of(name)];  // exactly zero in theory
    const double difference = (outcome.gradients.at(name) - gradient).abs().max().item<double>() / largest;
    if (!(difference <= worst.gradient)) worst.gradient = difference, worst.worst_gradient = name;
    const auto change = reference.after.at(name) - reference.before.at(name);
    const auto other = outcome.after.at(name) - outcome.before.at(name);
    const double moved = (other - change).norm().item<double>() / change.norm().item<double>();
    if (!(moved <= worst.change)) worst.change = moved, worst.worst_change = name;
  }
  worst.norm = std::abs(outcome.norm - reference.norm) / reference.norm;
  for (size_t i = 0; i < reference.losses.size(); ++i)
    worst.loss = std::max(worst.loss, std::abs(outcome.losses.at(i) - reference.losses[i]) / reference.losses[i]);
  return worst;
}

Limits limits_of(const std::string& dtype) {
  if (dtype == "float64") return {1e-10, 1e-10, 1e-12, 1e-8};
  return {1e-5, 1e-6, 2e-6, 1e-3};
}

}  // namespace shardline::parity
