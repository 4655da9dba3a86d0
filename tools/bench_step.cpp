// Measures the training step of a config on its layout and device (runtime.device) and prints one JSON line. Every step
// trains on the same batch of token ids, so that only the step is measured. The ids come from data.train if that is a
// token file, otherwise they are random. `memory` contains the peak of each rank's tensors, as its allocator counted
// them, next to the plan's total without the runtime of an accelerator, which no allocator sees. With several stages
// the line also states how long each rank computed, and the ratio of the pipeline's time to what the simulator
// predicts: the instruction times of every second step predict the step after it. With --profile it also states the
// step time that the file of `shardline profile` predicts, or why that file does not apply to this run; with --ceiling
// the rate of a large matrix product of the config's type on the same device, and the model's products of a step as a
// fraction of it.
//
//   bench_step CONFIG.json [--set path=value ...] [--warmup 2] [--steps 5] [--products aten] [--profile profile.json]
//              [--ceiling]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/commands/parts/job_parts.h"
#include "engine/commands/parts/open_data.h"
#include "engine/config/config.h"
#include "engine/config/rules/precision_rules.h"
#include "engine/data/dataset/repeated_batch.h"
#include "engine/launch/start_ranks.h"
#include "engine/plan/forecast.h"
#include "engine/plan/profile_use.h"
#include "engine/profile/device_times.h"
#include "engine/run/median.h"
#include "partitioner/cost/layer_prices.h"
#include "partitioner/memory/rank_memory.h"
#include "tensor_parallel/products/products.h"
#include "tools/bench_main.h"
#include "tools/step_simulation.h"

using namespace shardline;

namespace {

struct Options {
  std::string config;
  std::vector<std::string> overrides;
  int warmup = 2, steps = 5;
  ProductLibrary products = ProductLibrary::automatic;
  std::string profile;
  bool ceiling = false;
};

RepeatedBatch make_batch(const Config& config, const JobParts& parts, RankContext& context) {
  if (config.data.format != DataFormat::tokens)
    return {parts.plan.layout.global_batch(), config.data.sequence_length, parts.model.spec.vocab_size, 1234};
  const auto data = open_data(config, parts.model, parts.plan.layout, context, true);
  const Batch first = data.train->batch(0, {0, parts.plan.layout.global_batch()});
  return {first.rows, first.weight};
}

// Medians of the measured steps.
nlohmann::json pipeline_report(const Schedule& schedule, const std::vector<MeasuredPipeline>& steps) {
  std::vector<double> ratios, simulated, spans;
  for (size_t i = 1; i < steps.size(); i += 2) {
    simulated.push_back(simulated_seconds(schedule, steps[i - 1]));
    spans.push_back(steps[i].span);
    ratios.push_back(spans.back() / simulated.back());
  }
  const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
  nlohmann::json seconds = nlohmann::json::array();
  for (const auto& [key, mean] : steps.back().seconds_of) seconds.push_back({to_string(key.first), key.second, mean});
  return {{"schedule", schedule.name},
          {"busy_seconds", steps.back().busy},
          {"op_chunk_seconds", seconds},
          {"seconds", median(spans)},
          {"simulated", median(simulated)},
          {"over_simulated", median(ratios)},
          {"lowest", *low},
          {"highest", *high}};
}

// The profile's prediction of the measured times.
nlohmann::json forecast_report(const Config& config, const JobParts& parts, const RankContext& context,
                               const std::string& path, double measured) {
  const auto& [model, machines, plan, groups] = parts;
  const auto found = find_profile(path, profile_conditions(config, plan, context), plan, model.spec);
  if (!found.profile) return {{"why_not", found.why_not}};
  const StepEstimate step =
      forecast_step(planning_machines(config, plan.workload, plan.layout.world(), {.profile = found.profile}), plan);
  return {{"step_seconds", step.seconds},
          {"pipeline_seconds", step.pipeline_seconds},
          {"reduction_seconds", step.reduction_seconds},
          {"optimizer_seconds", step.optimizer_seconds},
          {"bubble_fraction", step.bubble_fraction},
          {"measured_over_predicted", measured / step.seconds}};
}

nlohmann::json memory_report(const JobParts& parts, const StepMetrics& metrics) {
  const auto planned = tensor_bytes_by_rank(placed_layers(parts.plan));
  nlohmann::json ranks = nlohmann::json::array();
  for (size_t rank = 0; rank < planned.size(); ++rank) {
    const RankMemory& measured = metrics.peak_memory_bytes.at(rank);
    ranks.push_back({{"planned_bytes", planned[rank].total()},
                     {"counted_bytes", measured.counted},
                     {"resident_bytes", measured.resident}});
  }
  return ranks;
}

struct Measured {
  std::vector<double> seconds, losses;
  std::vector<MeasuredPipeline> pipelines;
  StepMetrics last;
};

Measured measure_steps(const Config& config, const Options& options, JobParts& parts, RankContext& context) {
  RepeatedBatch data = make_batch(config, parts, context);
  RankTrainer trainer({config, parts.plan, parts.model, parts.groups, context.device}, options.warmup + options.steps);
  fill_parameters(config.model, parts.model, config.training.seed, trainer.parameters());

  Measured measured;
  for (int step = 1; step <= options.warmup + options.steps; ++step) {
    context.world->barrier();
    const double start = steady_seconds();
    measured.last = trainer.train_step(data, step);
    context.world->barrier();
    measured.losses.push_back(measured.last.loss);
    if (step <= options.warmup) continue;
    measured.seconds.push_back(steady_seconds() - start);
    measured.pipelines.push_back(gather_pipeline(*context.world, trainer.last_step().instructions));
  }
  return measured;
}

void measure(const Config& written, const Options& options, RankContext& context) {
  const Config config = completed_config(written, *context.world, /*trains=*/true);
  JobParts parts = make_parts(config, context);
  const auto [seconds, losses, pipelines, metrics] = measure_steps(config, options, parts, context);
  DeviceMeasurement device;  // after the steps, whose memory is free by now
  if (options.ceiling) device = measure_device(context, number_types(config).values);
  if (!context.out) return;
  const double taken = median(seconds), flops = model_flops(parts.plan.workload);
  nlohmann::json peaks = nlohmann::json::array();
  for (const auto& memory : metrics.peak_memory_bytes) peaks.push_back(memory.resident);
  nlohmann::json line = {{"program", "shardline"},
                         {"mesh", parts.plan.layout.mesh()},
                         {"products", products_in_use()},
                         {"tokens_per_second", metrics.tokens / taken},
                         {"step_seconds", taken},
                         {"all_step_seconds", seconds},
                         {"bubble_fraction", metrics.bubble_fraction},
                         {"exposed_communication_fraction", metrics.exposed_communication_fraction},
                         {"loss", losses},
                         {"flops_per_step", flops},
                         {"memory", memory_report(parts, metrics)},
                         {"peak_rss_bytes_per_rank", peaks}};
  if (options.ceiling) {
    const double ceiling = parts.plan.layout.world() * device.flops_per_second;
    line["ceiling_flops_per_second"] = ceiling;
    line["fraction_of_ceiling"] = flops / taken / ceiling;
  }
  if (parts.plan.layout.pipeline > 1 && pipelines.size() > 1)
    line["pipeline"] = pipeline_report(parts.plan.train, pipelines);
  if (!options.profile.empty()) line["predicted"] = forecast_report(config, parts, context, options.profile, taken);
  *context.out << line.dump() << std::endl;
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("bench_step: measures the training step of a config");
  app.add_option("config", options.config)->required()->check(CLI::ExistingFile);
  app.add_option("--set", options.overrides, "path=value that replaces a value of the config");
  app.add_option("--warmup", options.warmup, "steps before the measured ones")->capture_default_str();
  app.add_option("--steps", options.steps, "measured steps")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--products", options.products, "implementation of matrix products on CPUs")
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, ProductLibrary>{{"aten", ProductLibrary::aten}, {"onednn", ProductLibrary::onednn}}));
  app.add_option("--profile", options.profile, "profile of this config, from shardline profile")
      ->check(CLI::ExistingFile);
  app.add_flag("--ceiling", options.ceiling, "measure a large matrix product, too");
  CLI11_PARSE(app, argc, argv);
  const Config config = read_config(options.config, options.overrides);
  use_products(options.products);
  if (needs_mpirun(config)) return start_ranks(config, {argv + 1, argv + argc}, std::cerr);
  run_on_ranks(config, std::cout, console_of_job(), [&](RankContext& context) { measure(config, options, context); });
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return bench_main(argc, argv, run);
}
