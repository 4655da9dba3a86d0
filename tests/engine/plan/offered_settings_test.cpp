// Settings that plans print: the advice for a plan that does not fit leads to one that fits, and nothing that a plan
// offers or chooses contradicts the rest of the config.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "engine/commands/job.h"
#include "engine/config/config.h"
#include "engine/config/rules/sizes.h"
#include "engine/plan/forecast.h"
#include "engine/plan/layout_search.h"

#include "tests/catch.h"

namespace shardline::offered_settings_test {

using Catch::Contains;
using nlohmann::json;

namespace {

constexpr const char* kFile = "settings test";

json file_of(const json& smp) {
  return {{"model",
           {{"config",
             {{"model_type", "gpt2"},
              {"n_layer", 8},
              {"n_head", 4},
              {"n_embd", 64},
              {"vocab_size", 256},
              {"n_positions", 64}}}}},
          {"data", {{"train", "unused"}, {"tokenizer", "bytes"}, {"sequence_length", 64}}},
          {"training", {{"global_batch_size", 64}, {"use_cpu", true}}},
          {"smp_options", smp},
          {"runtime", {{"communicator", "threads"}}},
          {"output_dir", "unused"}};
}

class ClusterFile {
 public:
  ~ClusterFile() { std::filesystem::remove(path_); }
  const std::string& write(int nodes, int devices, double memory_bytes) {
    const json link = {{"bandwidth_gbs", 10}, {"latency_us", 10}};
    std::ofstream(path_) << json{{"name", "test"},
                                 {"nodes", nodes},
                                 {"devices_per_node", devices},
                                 {"hourly_price", 10},
                                 {"device",
                                  {{"name", "test"},
                                   {"memory_gib", memory_bytes / 1073741824.0},
                                   {"memory_bandwidth_gbs", 1000},
                                   {"peak_tflops", {{"fp32", 10}}}}},
                                 {"intra_node", link},
                                 {"inter_node", link},
                                 {"host", link}};
    return path_;
  }

 private:
  const std::string path_ = std::filesystem::temp_directory_path() / cat("offered_settings_test_", getpid(), ".json");
};

PlannedModel planned(const Config& config) {
  return plan_model(config, configured_world_size(config));
}
Forecast forecast(const Config& config) {
  const auto all = planned(config);
  return make_forecast(config, all.machines, all.plan);
}

// Reads a config as the program does.
Config read(const json& file) {
  const Config config = parse_config(file.dump(), kFile);
  return parse_config(file.dump(), kFile, settings_between(config, with_chosen_degrees(config)));
}

}  // namespace

TEST_CASE("following the advice makes a plan that fits, with automatic and manual placement") {
  ClusterFile cluster;
  const json placed[] = {{{"auto_partition", true}},
                         {{"auto_partition", true}, {"memory_weight", 1}},
                         {{"auto_partition", false}, {"manual_partition", {1, 7}}},
                         {{"auto_partition", false}, {"manual_partition", {6, 2}}},
                         {{"auto_partition", false}, {"manual_partition", {4, 4}}}};
  int advised = 0;
  for (const auto& partition : placed)
    for (const char* pipeline : {"interleaved", "simple", "zb_h1"}) {
      json smp = partition;
      smp.update({{"pipeline_parallel_degree", 2}, {"microbatches", 4}, {"pipeline", pipeline}});
      json file = file_of(smp);
      file["mpi_options"] = {{"processes_per_host", 4}};
      file["cluster"] = cluster.write(1, 4, 1e12);
      const double needed = forecast(parse_config(file.dump(), kFile)).fit.bytes;
      for (const double share : {0.9, 0.75, 0.6, 0.5, 0.4, 0.3, 0.2}) {
        cluster.write(1, 4, share * needed);
        const auto tight = forecast(parse_config(file.dump(), kFile));
        CAPTURE(file.dump(), share, tight.fit.why, json(tight.advice_settings).dump());
        if (!tight.advice) continue;
        const auto changed = forecast(parse_config(file.dump(), kFile, tight.advice_settings));
        CAPTURE(changed.fit.why);
        CHECK(changed.fit.fits);
        ++advised;
      }
    }
  CHECK(advised > 50);
}

TEST_CASE("\"auto\" leaves a config with one rank if it allows no more") {
  for (const char* degree : {"pipeline_parallel_degree", "tensor_parallel_degree"}) {
    json file = file_of({{degree, "auto"}});
    CAPTURE(degree);
    file["runtime"] = {{"communicator", "local"}};
    CHECK(configured_world_size(read(file)) == 1);
    file["runtime"] = json::object();
    file["mpi_options"] = {{"enabled", false}};
    CHECK(configured_world_size(read(file)) == 1);
    file["runtime"] = {{"communicator", "threads"}, {"memory_cap", "1GiB"}};
    CHECK(configured_world_size(read(file)) == 1);
  }
}

TEST_CASE("candidates of more ranks do not share the memory cap of a process") {
  ClusterFile cluster;
  json file = file_of(json::object());
  file["runtime"]["memory_cap"] = "1GiB";
  file["cluster"] = cluster.write(1, 4, 1e12);
  const json plan = json::parse(plan_job(read(file), {.json = true, .search = "time"}));
  int offered = 0;
  for (const auto& candidate : plan["candidates"]) {
    if (!candidate.contains("settings")) continue;
    const auto settings = candidate["settings"].get<std::vector<std::string>>();
    CAPTURE(candidate["settings"].dump());
    CHECK_NOTHROW(planned(parse_config(file.dump(), kFile, settings)));
    ++offered;
  }
  CHECK(offered == 10);
}

TEST_CASE("a list of candidates states why the others are slower") {
  ClusterFile cluster;
  json file = file_of(json::object());
  file["cluster"] = cluster.write(4, 2, 1e12);
  const auto list = [&](const char* ranking) { return plan_job(read(file), {.search = ranking}); };
  CHECK_THAT(list("time"), Contains(" % slower: ") && Contains(" slower, 0 that do not fit"));
  CHECK_THAT(list("cost"), Contains(" % more expensive: ") && !Contains("slower"));
  CHECK_THAT(list("memory"), Contains(" % more memory") && !Contains("slower"));
  cluster.write(4, 2, 1e4);
  CHECK_THAT(list("time"), Contains("none fits; the closest: "));
}

}  // namespace shardline::offered_settings_test
