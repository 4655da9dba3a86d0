#include "engine/launch/fewer_hosts.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "engine/config/config.h"
#include "engine/config/rules/allocation.h"
#include "engine/config/rules/sizes.h"
#include "tests/engine/config/environment.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::fewer_hosts_test {

using Catch::Matchers::Contains;

namespace {

using Names = std::vector<std::string>;

nlohmann::json on_four_hosts(const nlohmann::json& changes) {
  nlohmann::json file = {{"model", {{"config", {{"model_type", "gpt2"}}}}},
                         {"data", {{"train", "text.txt"}, {"tokenizer", "bytes"}}},
                         {"mpi_options", {{"hosts", {"a", "b", "c", "d"}}, {"processes_per_host", 2}}},
                         {"output_dir", "out"}};
  file.merge_patch(changes);
  return file;
}

Config config_of(const nlohmann::json& changes, const Names& settings = {}) {
  return parse_config(on_four_hosts(changes).dump(), "run.json", settings);
}

Layout layout_of(const Config& config) {
  return resolve_sizes(config, configured_world_size(config));
}

}  // namespace

TEST_CASE("Fewer hosts keep the global batch, with microbatches that are no larger", "[fewer_hosts]") {
  const std::vector<nlohmann::json> ways = {
      {{"training", {{"global_batch_size", 48}}}, {"smp_options", {{"microbatches", 2}}}},
      {{"training", {{"global_batch_size", 48}, {"gradient_accumulation_steps", 2}}}},
      {{"training", {{"per_device_train_batch_size", 6}}}},
      {{"training", {{"per_device_train_batch_size", 3}, {"gradient_accumulation_steps", 2}}}},
      {{"training", {{"per_device_train_batch_size", 6}, {"global_batch_size", 48}}}},
      {{"training", {{"per_device_train_batch_size", 6}}},
       {"smp_options", {{"tensor_parallel_degree", 2}, {"microbatches", 2}}}}};
  for (const auto& changes : ways) {
    const Config config = config_of(changes);
    const Layout all = layout_of(config);
    for (const Names& hosts : {Names{"a", "c", "d"}, Names{"b", "d"}, Names{"c"}}) {
      INFO(changes << " on " << hosts.size());
      const Config fewer = config_of(changes, settings_on_hosts(config, hosts));
      const Layout layout = layout_of(fewer);
      CHECK(fewer.mpi.hosts == hosts);
      CHECK(layout.global_batch() == all.global_batch());
      CHECK(layout.pipeline == all.pipeline);
      CHECK(layout.tensor == all.tensor);
      CHECK(layout.replicas * 4 == all.replicas * static_cast<int>(hosts.size()));
      CHECK(layout.microbatch_size <= all.microbatch_size);
      CHECK(layout.accumulation_steps >= all.accumulation_steps);
    }
  }
}

TEST_CASE("Degrees that are chosen again get as many ranks on each host as before", "[fewer_hosts]") {
  // In an allocation, a config names neither hosts nor ranks.
  const EnvironmentVariable hosts(kHostsOfLauncher, "a,b,c,d");
  const nlohmann::json open = {
      {"mpi_options", nullptr},
      {"smp_options", {{"pipeline_parallel_degree", "auto"}, {"tensor_parallel_degree", "auto"}}},
      {"training", {{"global_batch_size", 48}}}};
  Config config = config_of(open);
  config.mpi.processes_per_host = 2;  // as chosen by the planner
  const Config fewer = config_of(open, host_settings(config, {"a", "c"}));
  CHECK(fewer.mpi.hosts == Names{"a", "c"});
  CHECK(configured_world_size(fewer) == 4);
  CHECK(fewer.smp.pipeline_parallel_degree == kAuto);
}

TEST_CASE("A single host that is left does not have a setting without effect", "[fewer_hosts]") {
  const nlohmann::json changes = {{"mpi_options", {{"max_restarts", 1}, {"elastic", true}}},
                                  {"training", {{"global_batch_size", 48}}}};
  const Config config = config_of(changes);
  CHECK(config_of(changes, settings_on_hosts(config, {"a", "b"})).mpi.elastic);
  CHECK_FALSE(config_of(changes, settings_on_hosts(config, {"c"})).mpi.elastic);
}

TEST_CASE("The error names the numbers that do not divide", "[fewer_hosts]") {
  const Config config = config_of({{"training", {{"global_batch_size", 64}}}});
  CHECK_THAT(message_of<ConfigError>([&] {
               settings_on_hosts(config, {"a", "b", "c"});
             }),
             Contains("D = 6 does not divide the global batch 64"));
  const Config deep = config_of({{"training", {{"global_batch_size", 64}}},
                                 {"smp_options", {{"pipeline_parallel_degree", 4}, {"microbatches", 4}}}});
  CHECK_THAT(message_of<ConfigError>([&] {
               settings_on_hosts(deep, {"a", "b", "c"});
             }),
             Contains("6 ranks are not a multiple of P x T = 4 x 1"));
  const Config tight = config_of({{"training", {{"global_batch_size", 48}}}, {"smp_options", {{"microbatches", 6}}}});
  CHECK_THAT(message_of<ConfigError>([&] {
               settings_on_hosts(tight, {"a", "b", "c"});
             }),
             Contains("D = 6 x 6 microbatches x at least 2 accumulation steps"));
}

TEST_CASE("Fewer hosts train on the same samples or are refused", "[fewer_hosts]") {
  nlohmann::json changes = {
      {"training",
       {{"per_device_train_batch_size", 3}, {"gradient_accumulation_steps", 2}, {"dataloader_drop_last", true}}}};
  const auto go_on = [&] {
    const Config config = config_of(changes);
    check_same_samples(config, config_of(changes, settings_on_hosts(config, {"a", "b"})));
  };
  CHECK_THAT(message_of<ConfigError>(go_on), Contains("dataloader_drop_last") && Contains("48 samples instead of 24") &&
                                                 Contains("training.global_batch_size 48"));
  changes["training"]["global_batch_size"] = 48;
  go_on();
  changes["training"].erase("global_batch_size");
  changes["training"]["dataloader_drop_last"] = false;
  go_on();
}

TEST_CASE("The largest number of hosts that works is chosen", "[fewer_hosts]") {
  const Config config = config_of({{"training", {{"global_batch_size", 64}}}});
  int checks = 0;
  const auto settings = [&](const Names& hosts) { return settings_on_hosts(config, hosts); };
  const auto chosen = choose_hosts({"b", "c", "d"}, settings, [&](const Names&) { ++checks; });
  CHECK(chosen.hosts == Names{"b", "c"});
  CHECK(chosen.settings == settings({"b", "c"}));
  CHECK_THAT(chosen.why_not_more, Contains("on 3: D = 6 does not divide the global batch 64"));
  CHECK(checks == 1);

  const auto none = [&] {
    choose_hosts({"a", "b"}, settings, [](const Names&) { throw ConfigError("memory is short"); });
  };
  CHECK_THAT(message_of<ConfigError>(none), Contains("on 2: memory is short; on 1: memory is short"));
}

}  // namespace shardline::fewer_hosts_test
