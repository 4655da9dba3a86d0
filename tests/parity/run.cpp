#include "tests/parity/run.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <future>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/comm/threads_communicator.h"
#include "core/error.h"
#include "core/model/parameter_init.h"
#include "engine/config/config.h"
#include "engine/train/trainer.h"
#include "optim/flat/whole_gradients.h"
#include "tests/parity/random_documents.h"
#include "tests/parity/random_examples.h"
#include "tests/parity/random_source.h"
#include "tests/parity/traced_models.h"

namespace shardline::parity {
namespace {

using nlohmann::json;
using Tensors = std::map<std::string, at::Tensor>;

int64_t samples_of_step(const Point& point, int64_t step) {
  return point.short_batch && step % 2 == 0 ? point.global_batch / 2 - 1 : point.global_batch;
}

std::unique_ptr<BatchSource> random_source(const Point& point) {
  const auto samples = [point](int64_t step) { return samples_of_step(point, step); };
  const Shape shape = shape_of(point);
  const bool packed = point.packing != "off";
  if (point.task != "causal-lm")
    return std::make_unique<RandomExamples>(RandomTask{.seed = 99,
                                                       .task = point.task,
                                                       .vocab = shape.vocab,
                                                       .length = shape.sequence,
                                                       .types = point.model == "bert" ? 2 : 1,
                                                       .ignored = point.ignored,
                                                       .packed = packed,
                                                       .padding = point.padding,
                                                       .samples_in_step = samples});
  return std::make_unique<RandomSource>(RandomTokens{.seed = 99,
                                                     .vocab = shape.vocab,
                                                     .length = shape.sequence,
                                                     .ignored = point.ignored,
                                                     .packed = packed,
                                                     .samples_in_step = samples});
}

// The training data of a point.
class PointSource : public BatchSource {
 public:
  PointSource(const Point& point, const Tampering& tampering) : source_(random_source(point)), tampering_(tampering) {
    if (point.packing == "apart") source_ = std::make_unique<DocumentsApart>(std::move(source_));
  }

  int64_t samples_in_step(int64_t step) const override { return source_->samples_in_step(step); }
  Batch batch(int64_t step, const BatchSlice& slice) override {
    Batch batch = source_->batch(step, slice);
    if (tampering_.batch) tampering_.batch(batch);
    return batch;
  }

 private:
  std::unique_ptr<BatchSource> source_;
  const Tampering& tampering_;
};

json encoder_config(const Point& point) {
  const double p = point.dropout ? 0.1 : 0.0;
  const Shape shape = shape_of(point);
  if (point.model == "distilbert")
    return {{"model_type", "distilbert"},
            {"n_layers", 5},
            {"n_heads", shape.heads},
            {"dim", 24},
            {"hidden_dim", shape.inner},
            {"vocab_size", shape.vocab},
            {"max_position_embeddings", 40},
            {"dropout", p},
            {"attention_dropout", p},
            {"seq_classif_dropout", p},
            {"qa_dropout", p},
            {"tie_word_embeddings", point.tied},
            {"initializer_range", 0.2}};
  return {{"model_type", point.model},
          {"num_hidden_layers", 5},
          {"num_attention_heads", shape.heads},
          {"hidden_size", 24},
          {"intermediate_size", shape.inner},
          {"vocab_size", shape.vocab},
          {"max_position_embeddings", 42},
          {"hidden_dropout_prob", p},
          {"attention_probs_dropout_prob", p},
          {"tie_word_embeddings", point.tied},
          {"initializer_range", 0.2}};
}

json model_config(const Point& point) {
  if (is_traced(point)) return traced_config(point);
  if (!point.model.starts_with("gpt")) return encoder_config(point);
  const double p = point.dropout ? 0.1 : 0.0;
  const Shape shape = shape_of(point);
  if (point.model == "gpt_neo")  // windows shorter than most sequences
    return {{"model_type", "gpt_neo"},
            {"num_layers", 5},
            {"attention_types", json::parse(R"([[["global", "local"], 2], [["local"], 1]])")},
            {"num_heads", shape.heads},
            {"hidden_size", 24},
            {"intermediate_size", shape.inner},
            {"vocab_size", shape.vocab},
            {"max_position_embeddings", 40},
            {"window_size", 3},
            {"resid_dropout", p},
            {"embed_dropout", p},
            {"attention_dropout", p},
            {"tie_word_embeddings", point.tied},
            {"initializer_range", 0.2}};
  json config = {{"model_type", point.model},
                 {"n_layer", 5},
                 {"n_head", shape.heads},
                 {"n_embd", 24},
                 {"n_inner", shape.inner},
                 {"vocab_size", shape.vocab},
                 {"n_positions", 40},
                 {"resid_pdrop", p},
                 {"embd_pdrop", p},
                 {"attn_pdrop", p},
                 {"tie_word_embeddings", point.tied},
                 {"initializer_range", 0.2}};
  if (point.model == "gptj") config["rotary_dim"] = 4;  // all, a half or a sixth of a head
  return config;
}

json hf_config(const Point& point) {
  json config = model_config(point);
  if (point.task == "regression") config["num_labels"] = 1;
  if (point.task == "several labels") config["problem_type"] = "multi_label_classification";
  if (point.task.ends_with("classification") || point.task == "several labels") config["num_labels"] = kLabels;
  return config;
}

Config run_config(const Point& point) {
  const bool is_sequence = point.task == "regression" || point.task == "several labels";
  json file = {
      {"model", {{"config", hf_config(point)}}},
      {"task", is_sequence                   ? "sequence-classification"
               : point.task == "completions" ? "causal-lm"
                                             : point.task},
      {"data", {{"train", "unused"}, {"tokenizer", "bytes"}, {"sequence_length", shape_of(point).sequence}}},
      {"training",
       {{"global_batch_size", point.global_batch},
        {"gradient_accumulation_steps", point.accumulation},
        {"learning_rate", 1e-3},
        {"lr_scheduler_type", "constant"},
        {"weight_decay", 0.1},
        {"max_grad_norm", 1.0},
        {"optim", point.optim},
        {"trainable", trained_patterns(point)},
        {"label_smoothing_factor", point.smoothing ? 0.1 : 0.0},
        {"neftune_noise_alpha", point.dropout && point.dtype == "float64" && !is_traced(point) ? json(5) : json()},
        {"optim_args", point.optim == "sgd" ? json("momentum=0.9") : json()},
        {"seed", 1234}}},
      {"smp_options",
       {{"pipeline_parallel_degree", point.p},
        {"tensor_parallel_degree", point.t},
        {"tensor_parallel_layers", split_rules(point)},
        {"microbatches", point.microbatches},
        {"pipeline", point.schedule()},
        {"optimize", point.optimize},
        {"activation_checkpointing", point.checkpointing},
        {"offload_activations", point.offload != "off"},
        {"offload_scope", point.offload == "off" ? "checkpointed" : point.offload},
        {"activation_loading_horizon", 1},
        {"offload_path", std::filesystem::temp_directory_path().string()},
        {"offload_optimizer_states", point.states_on_host},
        {"placement_strategy", point.placement}}},
      {"mpi_options", {{"processes_per_host", point.world()}}},
      {"runtime",
       {{"dtype", point.dtype == "float64" ? "float64" : "float32"},
        {"communicator", point.world() == 1 ? "local" : "threads"}}},
      {"output_dir", "unused"}};
  if (point.task == "seq2seq-lm") file["data"]["max_target_length"] = shape_of(point).sequence / 2;
  if (point.schedule() == "interleaved_1f1b") file["smp_options"]["virtual_pipeline_degree"] = point.chunks_per_stage();
  auto& smp = file["smp_options"];
  smp["shard_optimizer_state"] = point.sharding == "ZeRO-1" || point.sharding == "ZeRO-2";
  smp["shard_gradients"] = point.sharding == "ZeRO-2";
  smp["bf16"] = point.dtype.starts_with("bf16");
  smp["fp16"] = point.dtype.starts_with("fp16");
  auto& training = file["training"];
  training["fp32_residual_addition"] = training["attention_in_fp32"] = point.dtype.ends_with("fp32 residuals");
  if (point.dtype.starts_with("fp16"))  // grows twice in a run
    training["dynamic_loss_args"] = {{"init_scale", 1024}, {"scale_window", 4}};
  if (point.dtype == "fp16 overflowing")  // grows in every step
    training["dynamic_loss_args"] = {{"init_scale", 1 << 18}, {"scale_window", 1}};
  training["query_key_layer_scaling"] = point.dtype == "fp16 scaled scores";
  if (point.sharding == "MiCS 2") {
    smp["sharded_data_parallel_degree"] = 2;
    smp["sdp_param_persistence_threshold"] = 100;
    smp["sdp_max_live_parameters"] = 1;
    smp["sdp_reduce_bucket_size"] = 1;
  } else if (point.sharding.starts_with("ZeRO-3")) {
    smp["sharded_data_parallel_degree"] = point.d;
    smp["sdp_param_persistence_threshold"] = point.sharding == "ZeRO-3" ? 0 : 1000;
  }
  if (point.active > 0) file["smp_options"]["active_microbatches"] = point.active;
  return parse_config(file.dump(), "parity point " + point.name());
}

struct Gathered {
  Tensors whole;
  double copies_differ = 0;  // largest difference of any rank's copy from the whole
};

// This rank's slices of the values.
Tensors values_of(StageParameters& parameters) {
  Tensors values;
  parameters.visit_values([&](const Parameter& p) { values[p.name] = p.value.cpu().clone(); });
  return values;
}

// Adds each rank's slice at its place in a whole tensor over the ranks that write it, and then compares the sum with
// all copies.
Gathered gather(StageParameters& parameters, const ModelSpec& spec, const Tensors& mine) {
  Gathered result;
  const auto& groups = parameters.groups();
  const auto differ = at::zeros({1}, at::kDouble);
  for (const auto& layer : spec.layers)
    for (const auto& param : layer.params) {
      if (!param.tied_to.empty()) continue;
      const auto tensor = at::zeros(param.shape, at::kDouble);
      const Range range = param.split(groups.coordinates.t, groups.mesh.t());
      const auto slice = param.split_dim < 0 ? tensor : tensor.narrow(param.split_dim, range.begin, range.length);
      const auto found = mine.find(layer.full_name(param));
      const auto local = found == mine.end() ? at::Tensor() : found->second;
      if (local.defined() && parameters.writes({found->first, &param, {}, {}})) slice.copy_(local);
      groups.world->all_reduce(tensor)->wait();
      if (local.defined() && local.numel() > 0) differ.copy_(at::maximum(differ, (slice - local).abs().max()));
      result.whole[layer.full_name(param)] = tensor;
    }
  groups.world->all_reduce(differ, {.op = ReduceOp::max})->wait();
  result.copies_differ = differ.item<double>();
  return result;
}

double largest_of(const at::Tensor& tensor) {
  return tensor.abs().max().item<double>();
}

// Query, key and value are three tensors in one.
std::vector<at::Tensor> parts_of(const std::string& name, const at::Tensor& tensor) {
  if (name.find(".qkv.") == std::string::npos) return {tensor};
  return {tensor[0], tensor[1], tensor[2]};
}

}  // namespace

Outcome run_point_on(const Point& point, const CommunicatorPtr& real_world, const Tampering& tampering,
                     const RankDevice& on) {
  const CommunicatorPtr world = tampering.world ? tampering.world(real_world) : real_world;
  const Config config = run_config(point);
  auto [model, machines, plan] = plan_model(config, world->size());
  if (tampering.spec) tampering.spec(model.spec, point);
  if (tampering.plan) tampering.plan(plan);
  const RankGroups groups = make_rank_groups(plan.layout.mesh(), world, on.world ? on.world : world);
  RankTrainer trainer({config, plan, model, groups, on.device}, point.steps);
  fill_parameters(config.model, model, 1234, trainer.parameters());

  PointSource data(point, tampering);
  Outcome outcome;
  StageParameters& parameters = trainer.parameters();
  outcome.before = gather(parameters, model.spec, values_of(parameters)).whole;
  if (tampering.after_step) tampering.after_step(trainer, 0);
  trainer.accumulate_gradients(data, 1);
  auto slices = whole_gradients(parameters, model.spec);
  for (auto& [name, gradient] : slices) gradient /= trainer.loss_scale();
  const Gathered gradients = gather(parameters, model.spec, slices);
  outcome.gradients = gradients.whole;
  for (int step = 1; step <= point.steps; ++step) {
    const StepMetrics metrics = trainer.train_step(data, step);
    outcome.losses.push_back(metrics.loss);
    if (step == 1) outcome.norm = metrics.grad_norm;
    if (tampering.after_step) tampering.after_step(trainer, step);
  }
  const Gathered after = gather(parameters, model.spec, values_of(parameters));
  outcome.after = after.whole;
  outcome.copies_differ = std::max(gradients.copies_differ, after.copies_differ);
  return outcome;
}

ChooseDevice shared_by_ranks(at::Device device) {
  return [device](const CommunicatorPtr&) {
    const c10::impl::VirtualGuardImpl guard(device.type());
    guard.setDevice(device);
    guard.exchangeStream(guard.getStreamFromGlobalPool(device));
    return RankDevice{device};
  };
}

Outcome run_point(const Point& point, const Tampering& tampering, const ChooseDevice& choose) {
  Outcome outcome;
  run_ranks(point.world(), [&](const CommunicatorPtr& world) {
    Outcome mine = run_point_on(point, world, tampering, choose ? choose(world) : RankDevice());
    if (world->rank() == 0) outcome = std::move(mine);
  });
  return outcome;
}

const Outcome& reference(const Point& point) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_future<Outcome>> known;  // never forgets
  std::unique_lock lock(mutex);
  const auto [entry, is_new] = known.try_emplace(point.reference_key());
  if (is_new) entry->second = std::async(std::launch::deferred, [=] { return run_point(point.reference()); }).share();
  const auto& outcome = entry->second;
  lock.unlock();
  return outcome.get();  // the first test that needs the result computes it
}

void at_once(size_t count, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next = 0;
  std::vector<std::future<void>> workers;
  for (unsigned worker = 0; worker < std::max(1u, std::thread::hardware_concurrency()); ++worker)
    workers.push_back(std::async(std::launch::async, [&] {
      for (size_t i = next++; i < count; i = next++) work(i);
    }));
  for (auto& worker : workers) worker.get();
}

std::string Difference::exceeds(const Limits& limits) const {
  std::string text;
  const auto check = [&](double value, double limit, const char* what) {
    if (!(value <= limit)) text += cat(text.empty() ? "" : ", ", what);  // NaN, too
  };
  check(gradient, limits.gradient, "gradient");
  check(norm, limits.norm, "norm");
  check(loss, limits.loss, "loss");
  check(change, limits.change, "change");
  check(copies, 0, "copies");
  return text;
}

Difference compare(const Outcome& outcome, const Outcome& reference, const Limits& limits) {
  Difference worst;
  std::map<std::string, double> layer_largest;
  const auto layer_of = [](const std::string& name) {  // "h.3.attn.out.bias" -> "h.3", "head.ln_f.bias" -> "head"
    return name.substr(0, name.find('.', name.starts_with("h.") ? 2 : 0));
  };
  for (const auto& [name, gradient] : reference.gradients) {
    auto& largest = layer_largest[layer_of(name)];
    largest = std::max(largest, largest_of(gradient));
  }
  double model_largest = 0;
  for (const auto& [layer, largest] : layer_largest) model_largest = std::max(model_largest, largest);
  for (auto& [layer, largest] : layer_largest)
    if (limits.zero_layers && largest <= limits.zero * model_largest) largest = model_largest;
  for (const auto& [name, gradient] : reference.gradients) {
    const double zero = limits.zero * layer_largest[layer_of(name)];
    const double largest = largest_of(gradient) > zero ? largest_of(gradient) : layer_largest[layer_of(name)];
    const double apart_most = largest_of(outcome.gradients.at(name).reshape(gradient.sizes()) - gradient);
    const double difference = apart_most == 0 ? 0 : apart_most / largest;  // infinite if all of the layer is frozen
    if (!(difference <= worst.gradient)) worst.gradient = difference, worst.worst_gradient = name;

    const auto change = parts_of(name, reference.after.at(name) - reference.before.at(name));
    // A program's layout may have turned a dimension that it divides into several dimensions.
    const at::Tensor& whole = reference.after.at(name);
    const auto other = parts_of(name, (outcome.after.at(name) - outcome.before.at(name)).reshape(whole.sizes()));
    const auto gradients = parts_of(name, gradient);
    double moved = 0, apart = 0;  // squared
    for (size_t i = 0; i < change.size(); ++i) {
      const at::Tensor counted =
          limits.rounding_moves ? (gradients[i].abs() > zero).to(change[i].scalar_type()) : at::ones_like(change[i]);
      moved += (change[i] * counted).square().sum().item<double>();
      apart += ((other[i] - change[i]) * counted).square().sum().item<double>();
    }
    const double relative = apart == 0 ? 0 : std::sqrt(apart / moved);
    if (!(relative <= worst.change)) worst.change = relative, worst.worst_change = name;
  }
  worst.copies = outcome.copies_differ;
  worst.norm = std::abs(outcome.norm - reference.norm) / reference.norm;
  for (size_t i = 0; i < reference.losses.size(); ++i) {
    const double loss = std::abs(outcome.losses.at(i) - reference.losses[i]) / std::abs(reference.losses[i]);
    if (!(loss <= worst.loss)) worst.loss = loss;
  }
  return worst;
}

bool bit_equal(const Outcome& a, const Outcome& b) {
  const auto same = [](const Tensors& x, const Tensors& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), [](const auto& one, const auto& other) {
      return one.first == other.first && at::equal(one.second, other.second);
    });
  };
  return same(a.gradients, b.gradients) && same(a.before, b.before) && same(a.after, b.after) && a.norm == b.norm &&
         a.losses == b.losses;
}

}  // namespace shardline::parity
