// The effect of offload_optimizer_states on plans and runs.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/comm/threads_communicator.h"
#include "core/error.h"
#include "engine/commands/parts/job_parts.h"
#include "engine/config/config.h"
#include "engine/config/rules/sizes.h"
#include "engine/plan/forecast.h"
#include "engine/plan/layout_search.h"
#include "engine/train/trainer.h"
#include "tests/engine/train/ones_source.h"
#include "tests/engine/uneven_gpt2.h"

#include "tests/catch.h"

namespace shardline::host_states_test {

using Catch::Contains;
using nlohmann::json;

namespace {

constexpr int64_t kSamples = 12, kLength = 9;

// Four accelerators. host: null for none.
std::string cluster_file(const std::string& name, const json& host, double memory_gib = 16) {
  json cluster = {{"name", name},
                  {"nodes", 1},
                  {"devices_per_node", 4},
                  {"device",
                   {{"name", "test"},
                    {"memory_gib", memory_gib},
                    {"memory_bandwidth_gbs", 1000},
                    {"multiprocessors", 100},
                    {"peak_tflops", {{"fp32", 10}, {"bf16", 100}}}}},
                  {"intra_node", {{"bandwidth_gbs", 100}, {"latency_us", 1}}}};
  if (!host.is_null()) cluster["host"] = host;
  const auto path = std::filesystem::temp_directory_path() / cat("host_states_test_", name, ".json");
  std::ofstream(path) << cluster;
  return path;
}

const json kHost = {{"bandwidth_gbs", 10}, {"latency_us", 10}, {"memory_bandwidth_gbs", 40}};

struct Choice {
  bool on_host = false, bf16 = false;
  int p = 1, t = 1, d = 1, degree = 1;
  bool shards_states = false;
  std::string optim = "adamw_torch_fused", cluster = "", device = "auto";
};

Config config_of(const Choice& c) {
  json file = {{"model", {{"config", uneven_gpt2(61, 0, true)}}},
               {"data", {{"train", "unused"}, {"tokenizer", "bytes"}, {"sequence_length", kLength}}},
               {"training", {{"global_batch_size", kSamples}, {"max_steps", 10}, {"bf16", c.bf16}, {"optim", c.optim}}},
               {"smp_options",
                {{"offload_optimizer_states", c.on_host},
                 {"shard_optimizer_state", c.shards_states},
                 {"sharded_data_parallel_degree", c.degree},
                 {"microbatches", 3},
                 {"ddp", true},
                 {"pipeline_parallel_degree", c.p},
                 {"tensor_parallel_degree", c.t}}},
               {"mpi_options", {{"processes_per_host", c.p * c.t * c.d}}},
               {"runtime", {{"device", c.device}, {"communicator", c.p * c.t * c.d == 1 ? "local" : "threads"}}},
               {"cluster", c.cluster},
               {"output_dir", "unused"}};
  if (c.degree > 1) file["smp_options"]["sdp_param_persistence_threshold"] = 50;
  return parse_config(file.dump(), "host states test");
}

Forecast forecast_of(const Choice& c) {
  const Config config = config_of(c);
  const auto [source, machines, plan] = plan_model(config, configured_world_size(config));
  return make_forecast(config, machines, plan);
}

json told_json(const Choice& c) {
  const Config config = config_of(c);
  const auto [source, machines, plan] = plan_model(config, configured_world_size(config));
  json told = plan_json(plan);
  add_forecast(told, make_forecast(config, machines, plan));
  return told;
}

}  // namespace

TEST_CASE("offloaded states move from the device to the host in the plan of each rank") {
  const std::string cluster = cluster_file("good", kHost);
  const std::vector<Choice> layouts = {
      {}, {.p = 2, .t = 2}, {.d = 4, .shards_states = true}, {.d = 4, .degree = 2}, {.t = 2, .d = 2, .degree = 2}};
  for (Choice c : layouts)
    for (const bool bf16 : {false, true})
      for (const char* optim : {"adamw_torch_fused", "sgd", "adafactor"}) {
        c.cluster = cluster;
        c.bf16 = bf16;
        c.optim = optim;
        c.on_host = false;
        const Forecast device = forecast_of(c);
        c.on_host = true;
        const Forecast host = forecast_of(c);
        CAPTURE(c.d, c.p, c.t, c.degree, c.shards_states, bf16, optim);
        for (size_t rank = 0; rank < device.memory.size(); ++rank) {
          const MemoryBytes &there = device.memory[rank], &here = host.memory[rank];
          CHECK(here.weights == there.weights);
          CHECK(here.gradients == there.gradients);
          CHECK(here.activations == there.activations);
          CHECK(here.communication == there.communication);
          CHECK(here.workspace == there.workspace);
          CHECK(here.optimizer == 0);
          CHECK(here.total() == there.total() - there.optimizer);
          CHECK(there.host == 0);
          // In addition to states and masters: a copy of the gradients, as wide as a master, and one of the values, as
          // wide as passes use them.
          if (c.p * c.t * c.d == 1) {
            const double trained = there.weights / (bf16 ? 2 : 4);
            CHECK(here.host == there.optimizer + trained * (bf16 ? 4 + 2 : 4 + 4));
          }
          CHECK(here.host > there.optimizer);
        }
        CHECK(host.step.optimizer_seconds > device.step.optimizer_seconds);
        CHECK(host.step.pipeline_seconds == device.step.pipeline_seconds);
        CHECK(host.step.seconds - device.step.seconds ==
              Approx(host.step.optimizer_seconds - device.step.optimizer_seconds));
      }
}

TEST_CASE("a plan shows bytes on the host only if there are any") {
  const Choice away{.on_host = true, .p = 2, .cluster = cluster_file("good", kHost)};
  const json told = told_json(away);
  const Forecast forecast = forecast_of(away);
  for (size_t rank = 0; rank < 2; ++rank) {
    CHECK(told["ranks"][rank]["host_bytes"].get<double>() == forecast.memory[rank].host);
    CHECK(told["ranks"][rank]["memory_bytes"]["optimizer"] == 0);
  }
  const Config config = config_of(away);
  const auto planned = plan_model(config, 2);
  CHECK_THAT(forecast_text(forecast, planned.plan), Contains("has the optimizer's states: up to "));
  Choice stays = away;
  stays.on_host = false;
  CHECK_FALSE(told_json(stays)["ranks"][0].contains("host_bytes"));
  CHECK_THAT(forecast_text(forecast_of(stays), planned.plan), !Contains("has the optimizer's states"));
}

TEST_CASE("a plan that needs more of a host than the host has does not fit") {
  Choice away{.on_host = true, .p = 2, .cluster = cluster_file("good", kHost)};
  const double needed = forecast_of(away).most_host_bytes();
  const Config config = config_of(away);
  const auto planned = plan_model(config, 2);
  for (const double share : {0.0, 1.0, 0.9}) {
    CAPTURE(share);
    json host = kHost;
    if (share > 0) host["memory_gib"] = share * needed / (1 << 30);
    away.cluster = cluster_file("stated", host);
    const Forecast forecast = forecast_of(away);
    const json told = told_json(away);
    const bool fits = share != 0.9;
    CHECK(forecast.fit.fits);
    CHECK(forecast.fits_hosts() == fits);
    CHECK(told["fits"] == fits);
    CHECK(told["hosts"]["fits"] == fits);
    CHECK(told["hosts"]["bytes"].get<double>() == needed);
    const std::string text = forecast_text(forecast, planned.plan);
    CHECK((text.find("NO: a host needs ") != std::string::npos) == !fits);
    CHECK((text.find("use fewer ranks per node") != std::string::npos) == !fits);
  }
}

TEST_CASE("plans for CPUs do not depend on offload_optimizer_states") {
  for (const char* cluster : {"", "local"}) {
    Choice c{.t = 2, .cluster = cluster, .device = "cpu"};
    const json plain = told_json(c);
    c.on_host = true;
    CHECK(told_json(c) == plain);
  }
  Choice c{.cluster = cluster_file("good", kHost), .device = "cpu"};
  const json plain = told_json(c);
  c.on_host = true;
  CHECK(told_json(c) == plain);
}

TEST_CASE("a cluster must state the rates that offloaded states need") {
  const Choice no_link{.on_host = true, .cluster = cluster_file("no_link", nullptr)};
  CHECK_THROWS_WITH(forecast_of(no_link), Contains("smp_options.offload_optimizer_states") && Contains("no_link") &&
                                              Contains("does not specify the link to its host") &&
                                              Contains("memory_bandwidth_gbs"));
  const Choice no_rate{.on_host = true,
                       .cluster = cluster_file("no_rate", {{"bandwidth_gbs", 10}, {"latency_us", 10}})};
  CHECK_THROWS_WITH(forecast_of(no_rate), Contains("does not specify the bandwidth of its host's memory"));
  Choice stays = no_rate;
  stays.on_host = false;
  CHECK_NOTHROW(forecast_of(stays));
}

TEST_CASE("a search counts states where the config keeps them") {
  Choice c{.d = 4, .cluster = cluster_file("good", kHost)};
  const auto first_of = [&](bool on_host) {
    c.on_host = on_host;
    const Config config = config_of(c);
    const auto planned = plan_model(config, 4);
    const auto candidates = search_layouts(config, config, planned, Ranking::memory);
    return candidates.found.best.front();
  };
  const auto device = first_of(false), host = first_of(true);
  for (const auto& stage : device.memory) CHECK(stage.host == 0);
  for (const auto& stage : host.memory) {
    CHECK(stage.optimizer == 0);
    CHECK(stage.host > 0);
  }
  CHECK(host.fit.bytes < device.fit.bytes);
}

TEST_CASE("training on CPUs does not depend on offload_optimizer_states") {
  const auto norms = [](bool on_host) {
    const Config config = config_of({.on_host = on_host, .d = 2, .shards_states = true, .device = "cpu"});
    std::vector<double> of_steps(3);
    run_ranks(2, [&](CommunicatorPtr world) {
      const auto [source, machines, plan] = plan_model(config, 2);
      RankTrainer trainer({config, plan, source, make_rank_groups(plan.layout.mesh(), world, world), at::kCPU}, 10);
      fill_parameters(config.model, source, 1, trainer.parameters());
      OnesSource data(kSamples, kLength);
      for (int step = 1; step <= 3; ++step) {
        const StepMetrics metrics = trainer.train_step(data, step);
        if (world->rank() == 0) of_steps[step - 1] = metrics.grad_norm;
      }
      for (const auto& range : trainer.parameters().trained_ranges())
        if (range.await_gradients || range.values_changed) throw RunError("CPU ranks have no host beside them");
    });
    return of_steps;
  };
  CHECK(norms(true) == norms(false));
}

}  // namespace shardline::host_states_test
