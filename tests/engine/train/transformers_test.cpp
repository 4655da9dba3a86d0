// Compares runs of transformers, recorded by tests/transformers/make_golden.py, with the same runs here on any layout.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <mutex>
#include <nlohmann/json.hpp>

#include "core/comm/threads_communicator.h"
#include "core/error.h"
#include "engine/config/config.h"
#include "engine/train/trainer.h"
#include "models/files/safetensors.h"

#include "tests/catch.h"

namespace shardline::transformers_test {

using nlohmann::json;

namespace {

std::string golden(const std::string& name) {
  return cat(SHARDLINE_GOLDEN, "/", name);
}

json read_run(const std::string& name) {
  std::ifstream file(golden(name) + "/run.json");
  return json::parse(file);
}

struct Layout {
  int d, p, t;
  std::string optimize, dtype = "float32";

  int world() const { return d * p * t; }
};

Config run_config(const json& run, const Layout& layout) {
  const json file = {
      {"model", {{"path", golden(run.at("case")) + "/model"}, {"config", run.at("config")}}},
      {"data", {{"train", "unused"}, {"tokenizer", "bytes"}, {"sequence_length", run.at("tokens")[0][0].size()}}},
      {"training",
       {{"global_batch_size", run.at("tokens")[0].size()},
        {"learning_rate", 1e-3},
        {"lr_scheduler_type", "constant"},
        {"weight_decay", 0.1},
        {"max_grad_norm", 1.0},
        {"trainable", run.value("trainable", json::array())},
        {"label_smoothing_factor", run.value("label_smoothing", 0.0)}}},
      {"smp_options",
       {{"pipeline_parallel_degree", layout.p},
        {"tensor_parallel_degree", layout.t},
        {"microbatches", layout.p > 1 ? 3 : 1},
        {"optimize", layout.optimize}}},
      {"mpi_options", {{"processes_per_host", layout.world()}}},
      {"runtime", {{"dtype", layout.dtype}, {"communicator", layout.world() == 1 ? "local" : "threads"}}},
      {"output_dir", "unused"}};
  return parse_config(file.dump(), "golden run");
}

// [samples, length] of one step
at::Tensor ids_of(const json& step) {
  const auto rows = step.get<std::vector<std::vector<int64_t>>>();
  auto ids = at::empty({static_cast<int64_t>(rows.size()), static_cast<int64_t>(rows[0].size())}, at::kLong);
  for (size_t i = 0; i < rows.size(); ++i) ids[static_cast<int64_t>(i)].copy_(at::tensor(rows[i], at::kLong));
  return ids;
}

// The largest difference over all ranks; a NaN is worse than any number.
struct Differences {
  double gradient = 0, norm = 0, logits = 0, loss = 0;
  std::string worst_gradient;

  static void raise(double& worst, double value) {
    worst = std::isnan(value) ? std::numeric_limits<double>::infinity() : std::max(worst, value);
  }
  void add(const Differences& other) {
    if (other.gradient > gradient) worst_gradient = other.worst_gradient;
    raise(gradient, other.gradient);
    raise(norm, other.norm);
    raise(logits, other.logits);
    raise(loss, other.loss);
  }
};

double relative(double value, double reference) {
  return std::abs(value - reference) / std::abs(reference);
}

// Every gradient that this rank holds, against its slice of the recorded one, relative to that one's largest element.
void compare_gradients(StageParameters& parameters, const HfDirectory& recorded, Differences& d) {
  const auto& groups = parameters.groups();
  for (const auto* parameter : parameters.stored()) {
    if (!parameter->spec->trainable) continue;
    auto mine = at::empty(parameter->value.sizes(), at::kDouble);
    recorded.read(*parameter->spec, parameter->name, groups.coordinates.t, groups.mesh.t(), mine);
    auto whole = at::empty(parameter->spec->shape, at::kDouble);
    recorded.read(*parameter->spec, parameter->name, 0, 1, whole);
    if (mine.numel() == 0) continue;
    const double difference = ((parameter->grad - mine).abs().max() / whole.abs().max()).item<double>();
    if (!(difference <= d.gradient)) d.worst_gradient = parameter->name;
    Differences::raise(d.gradient, difference);
  }
}

Differences run_rank(const std::string& name, const json& run, const Layout& layout, const CommunicatorPtr& world) {
  const Config config = run_config(run, layout);
  const auto [model, machines, plan] = plan_model(config, world->size());
  const json& steps = run.at("tokens");
  RankTrainer trainer({config, plan, model, make_rank_groups(plan.layout.mesh(), world, world), at::kCPU},
                      static_cast<int64_t>(steps.size()));
  fill_parameters(config.model, model, 0, trainer.parameters());

  Differences d;
  const SafetensorsFile logits(golden(name) + "/logits.safetensors");
  for (const auto& [length_name, entry] : logits.tensors()) {
    const auto length = std::stoll(length_name.substr(length_name.find('_') + 1));
    const auto ids = ids_of(steps[0]).narrow(0, 0, entry.shape[0]).narrow(1, 0, length).contiguous();
    const auto got = trainer.next_logits(ids, 0, {});
    Differences::raise(d.logits, (got - logits.tensor(length_name)).abs().max().item<double>());
  }

  FedSource data;
  for (const auto& step : steps) data.push(ids_of(step));
  trainer.accumulate_gradients(data, 1);
  compare_gradients(trainer.parameters(), HfDirectory(golden(name) + "/gradients"), d);
  const json& recorded = run.at(layout.dtype);
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto metrics = trainer.train_step(data, static_cast<int64_t>(i) + 1);
    if (i == 0) d.norm = relative(metrics.grad_norm, recorded.at("grad_norms")[0].get<double>());
    Differences::raise(d.loss, relative(metrics.loss, recorded.at("losses")[i].get<double>()));
  }
  return d;
}

Differences compare_run(const std::string& name, const Layout& layout) {
  const json run = read_run(name);
  Differences worst;
  std::mutex mutex;
  run_ranks(layout.world(), [&](CommunicatorPtr world) {
    const Differences mine = run_rank(name, run, layout, world);
    std::scoped_lock lock(mutex);
    worst.add(mine);
  });
  return worst;
}

void check_run(const std::string& name, const Layout& layout) {
  const Differences d = compare_run(name, layout);
  INFO(name << " on " << layout.d << "x" << layout.p << "x" << layout.t << " " << layout.optimize << " " << layout.dtype
            << ": gradient " << d.gradient << " (" << d.worst_gradient << "), norm " << d.norm << ", logits "
            << d.logits << ", loss " << d.loss);
  const bool wide = layout.dtype == "float64";  // the recorded gradients and logits are rounded to float32 there
  CHECK(d.gradient <= (wide ? 1e-7 : 1e-5));
  CHECK(d.norm <= (wide ? 1e-12 : 1e-6));
  CHECK(d.logits <= (wide ? 1e-6 : 1e-4));
  CHECK(d.loss <= (wide ? 1e-11 : 5e-6));
}

const std::vector<Layout> kLayouts = {
    {1, 1, 1, "speed"}, {1, 2, 2, "speed"}, {1, 2, 2, "memory"}, {2, 1, 3, "memory"}, {1, 3, 1, "speed"},
};

}  // namespace

TEST_CASE("every layout trains as transformers does", "[transformers]") {
  for (const char* name : {"tied", "options", "old", "gptj", "gptj_options", "gptj_old", "gpt_neo", "gpt_neo_options"})
    for (const auto& layout : kLayouts) check_run(name, layout);
}

TEST_CASE("frozen parameters and smoothed labels train as in transformers", "[transformers]") {
  for (const char* name : {"tied_frozen", "gptj_frozen", "tied_smoothed"}) {
    for (const auto& layout : kLayouts) check_run(name, layout);
    check_run(name, {1, 1, 1, "speed", "float64"});
    check_run(name, {2, 2, 2, "memory", "float64"});
  }
}

TEST_CASE("every activation trains as in transformers", "[transformers]") {
  for (const char* name : {"relu", "silu", "tanh"}) {
    check_run(name, {1, 1, 1, "speed"});
    check_run(name, {1, 2, 3, "memory"});
  }
}

TEST_CASE("in float64, every layout differs from transformers only by rounding", "[transformers]") {
  for (const char* name : {"tied", "options", "old", "relu", "silu", "tanh", "gptj", "gptj_options", "gptj_old",
                           "gpt_neo", "gpt_neo_options"}) {
    check_run(name, {1, 1, 1, "speed", "float64"});
    check_run(name, {2, 2, 2, "memory", "float64"});
  }
}

}  // namespace shardline::transformers_test
