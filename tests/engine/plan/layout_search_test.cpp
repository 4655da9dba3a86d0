// The results of a search can be used: the settings of its candidates reproduce what it priced, and "auto" finds a
// layout wherever numbers would. Random configs with many keys.
#include "engine/plan/layout_search.h"

#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "core/error.h"
#include "engine/commands/parts/job_parts.h"
#include "engine/config/config.h"
#include "engine/config/rules/sizes.h"
#include "engine/plan/forecast.h"
#include "engine/plan/profile_use.h"
#include "tests/case_sample.h"
#include "tests/engine/config/environment.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::layout_search_test {

using Catch::Contains;
using nlohmann::json;

namespace {

json small_file() {
  return {{"model",
           {{"config",
             {{"model_type", "gpt2"},
              {"n_layer", 4},
              {"n_head", 4},
              {"n_embd", 48},
              {"vocab_size", 200},
              {"n_positions", 16}}}}},
          {"data", {{"train", "unused"}, {"tokenizer", "bytes"}, {"sequence_length", 16}}},
          {"training", {{"global_batch_size", 24}, {"use_cpu", true}}},
          {"smp_options", json::object()},
          {"runtime", {{"communicator", "threads"}}},
          {"output_dir", "unused"}};
}

json cluster_of(int nodes, int devices) {
  const json link = {{"bandwidth_gbs", 10}, {"latency_us", 10}};
  return {{"name", "test"},
          {"nodes", nodes},
          {"devices_per_node", devices},
          {"device",
           {{"name", "test"}, {"memory_gib", 16}, {"memory_bandwidth_gbs", 1000}, {"peak_tflops", {{"fp32", 10}}}}},
          {"intra_node", link},
          {"inter_node", link},
          {"host", {{"bandwidth_gbs", 10}, {"latency_us", 10}, {"memory_bandwidth_gbs", 10}}}};
}

class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}

  bool chance(double p) { return std::uniform_real_distribution<>(0, 1)(random_) < p; }
  json pick(const std::vector<json>& values) {
    return values[std::uniform_int_distribution<size_t>(0, values.size() - 1)(random_)];
  }
  void set(json& section, double p, const char* key, const std::vector<json>& values) {
    if (chance(p)) section[key] = pick(values);
  }

  json file() {
    json file = small_file();
    json& model = file["model"]["config"];
    set(model, 0.7, "n_layer", {1, 2, 3});
    set(model, 0.5, "n_head", {2, 3});
    set(model, 0.3, "tie_word_embeddings", {false});
    set(file["training"], 0.5, "global_batch_size", {2, 3, 8, 12});
    if (chance(0.7)) file["mpi_options"] = {{"processes_per_host", pick({1, 2, 3, 4, 6, 8})}};
    json& smp = file["smp_options"];
    set(smp, 0.5, "pipeline_parallel_degree", {2, 2, 3, 4});
    set(smp, 0.4, "tensor_parallel_degree", {2, 2, 3, 4});
    set(smp, 0.6, "microbatches", {2, 3, 4});
    set(smp, 0.6, "pipeline", {"simple", "interleaved", "zb_h1", "zbv", "dualpipev", "interleaved_1f1b"});
    if (smp.value("pipeline", "") == "interleaved_1f1b") set(smp, 0.8, "virtual_pipeline_degree", {2, 3, 5});
    set(smp, 0.2, "active_microbatches", {1, 2, 4});
    set(smp, 0.4, "optimize", {"speed", "memory"});
    set(smp, 0.1, "placement_strategy", {"spread", "PDT"});
    if (chance(0.2)) {  // allows only one replica
      smp["ddp"] = false;
      if (file.contains("mpi_options"))
        file["mpi_options"]["processes_per_host"] = smp.value("pipeline_parallel_degree", 1);
    }
    set(smp, 0.1, "memory_weight", {0.5, 1});
    set(smp, 0.4, "activation_checkpointing",
        {"each",
         "selective",
         "group_2",
         {{{"layers", "h.0"}, {"strategy", "each"}}},
         {{{"layers", "h.0"}, {"strategy", "selective"}}}});
    set(smp, 0.3, "offload_activations", {true});
    set(smp, 0.2, "offload_scope", {"all", "checkpointed"});
    set(smp, 0.2, "shard_optimizer_state", {true});
    if (smp.contains("shard_optimizer_state"))
      set(smp, 0.5, "shard_gradients", {true});
    else
      set(smp, 0.3, "sharded_data_parallel_degree", {2, 3, 4});
    if (smp.contains("sharded_data_parallel_degree")) {
      set(smp, 0.4, "sdp_param_persistence_threshold", {10});
      set(smp, 0.3, "sdp_max_live_parameters", {1000});
      set(smp, 0.3, "sdp_reduce_bucket_size", {1000});
      set(smp, 0.3, "sdp_hierarchical_allgather", {false});
      set(smp, 0.4, "sdp_gradient_clipping", {0.5, 1});
    }
    set(smp, 0.2, "tensor_parallel_layers",
        {{{{"pattern", "*attn"}, {"split", false}}},
         {{{"pattern", "*mlp"}, {"split", false}}},
         {{{"pattern", "*"}, {"split", "auto"}}},
         {{{"pattern", "*"}, {"split", false}}, {{"pattern", "*attn"}, {"split", "auto"}}}});
    return file;
  }

  // A file that also has keys that are accepted only if no degree is "auto".
  json file_of_numbers() {
    json file = this->file();
    json& smp = file["smp_options"];
    if (chance(0.3)) {
      file["training"] = {{"use_cpu", true}};
      set(file["training"], 0.7, "per_device_train_batch_size", {2, 4, 6});
      set(file["training"], 0.5, "gradient_accumulation_steps", {2, 3});
      set(smp, 0.3, "prescaled_batch", {true});
    }
    set(smp, 0.1, "pipeline", {folder_.write("two.csv", "F0 F1 B0 B1\nF0 B0 F1 B1\n")});
    if (chance(0.2)) {
      smp["auto_partition"] = false;
      set(smp, 0.3, "default_partition", {0});
      std::vector<int> blocks(smp.value("pipeline_parallel_degree", size_t{1}), 1);
      blocks.front() = file["model"]["config"]["n_layer"].get<int>() - static_cast<int>(blocks.size()) + 1;
      set(smp, 0.7, "manual_partition", {blocks, {{{"layers", "*"}, {"stage", 0}}}});
    }
    set(file, 0.3, "cluster", {folder_.write("cluster.json", cluster_of(1, 4).dump())});
    if (!file.contains("mpi_options")) set(file["runtime"], 0.3, "communicator", {"local", "auto"});
    return file;
  }

 private:
  std::mt19937 random_;
  TempFolder folder_;
};

// Returns the message with which an action is refused; empty if it succeeds.
std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

// Reads a config as the program does.
Config read(const json& file, const std::vector<std::string>& settings = {}) {
  const Config config = parse_config(file.dump(), "search test", settings);
  auto all = settings;
  for (const auto& chosen : settings_between(config, with_chosen_degrees(config))) all.push_back(chosen);
  return parse_config(file.dump(), "search test", all);
}

PlannedModel planned(const Config& config) {
  return plan_model(config, configured_world_size(config));
}

std::vector<Recompute> recomputed(const Layout& layout, size_t layers) {
  return layout.recompute.empty() ? std::vector<Recompute>(layers) : layout.recompute;
}

void require_same(const Layout& wanted, const Layout& made, size_t layers) {
  CHECK(to_string(made) == to_string(wanted));
  CHECK(made.placement == wanted.placement);
  CHECK(made.schedule == wanted.schedule);
  if (made.schedule.kind != ScheduleKind::simple) CHECK(made.active_microbatches == wanted.active_microbatches);
  CHECK(recomputed(made, layers) == recomputed(wanted, layers));
  CHECK(made.sharding.level == wanted.sharding.level);
  CHECK(made.sharding.degree == wanted.sharding.degree);
  if (wanted.sharded() == Sharding::Level::weights) CHECK(made.sharding == wanted.sharding);
  CHECK(made.offload.enabled == wanted.offload.enabled);
  if (wanted.offload.enabled) CHECK(made.offload == wanted.offload);
}

}  // namespace

TEST_CASE("the settings of a candidate select the layout that the search priced") {
  Draw draw(20260301);
  int searched = 0, offered = 0;
  std::set<std::string> keys;
  const int searches = checks_all_cases() ? 60 : 20;
  while (searched < searches) {
    const bool with_auto = draw.chance(0.3);
    json file = with_auto ? draw.file() : draw.file_of_numbers();
    for (const char* key : {"pipeline_parallel_degree", "tensor_parallel_degree", "microbatches"})
      if (with_auto && draw.chance(0.6)) file["smp_options"][key] = "auto";
    CAPTURE(file.dump());
    Config config;
    std::optional<PlannedModel> own;
    if (!refusal([&] { own = planned(config = read(file)); }).empty()) continue;
    const Ranking ranking = draw.chance(0.5) ? Ranking::time : Ranking::memory;
    const auto candidates = search_layouts(parse_config(file.dump(), "search test"), config, *own, ranking);
    ++searched;
    for (size_t place = 0; place < candidates.settings.size(); ++place) {
      const auto& best = candidates.found.best[place];
      const auto& settings = candidates.settings[place];
      CAPTURE(to_string(best.layout), json(settings).dump());
      Config again;
      std::optional<PlannedModel> made;
      REQUIRE(refusal([&] { made = planned(again = read(file, settings)); }) == "");
      require_same(best.layout, made->plan.layout, own->model.spec.layers.size());
      CHECK(again.training.max_grad_norm == config.training.max_grad_norm);
      const Forecast forecast = make_forecast(again, made->machines, made->plan);
      CHECK(forecast.fit.bytes == Approx(best.fit.bytes).epsilon(1e-9));
      CHECK(forecast.step.seconds == Approx(best.step.seconds).epsilon(1e-9));
      for (const auto& setting : settings) keys.insert(setting.substr(0, setting.find('=')));
      ++offered;
    }
  }
  CHECK(offered > 5 * searches);
  CAPTURE(json(keys).dump());
  std::vector<const char*> expected = {"processes_per_host", "ddp", "sharded_data_parallel_degree"};
  if (checks_all_cases()) expected.push_back("auto_partition");
  for (const char* key : expected)
    CHECK(std::any_of(keys.begin(), keys.end(), [&](const auto& name) { return name.ends_with(key); }));
}

TEST_CASE("where numbers are accepted, \"auto\" in the place of one finds a layout") {
  Draw draw(20260302);
  int accepted = 0, sharded = 0, without_ddp = 0;
  const int files = checks_all_cases() ? 150 : 50;
  while (accepted < files) {
    json file = draw.file();
    if (!file.contains("mpi_options")) continue;
    if (!refusal([&] { planned(read(file)); }).empty()) continue;
    ++accepted;
    const json& smp = file["smp_options"];
    sharded += smp.contains("sharded_data_parallel_degree");
    without_ddp += smp.contains("ddp") && smp.contains("pipeline_parallel_degree");
    std::vector<const char*> degrees = {"pipeline_parallel_degree", "tensor_parallel_degree", "microbatches"};
    if (smp.value("pipeline", "") == "interleaved_1f1b") degrees.push_back("virtual_pipeline_degree");
    if (!smp.contains("shard_optimizer_state")) degrees.push_back("sharded_data_parallel_degree");
    for (const char* degree : degrees) {
      json open = file;
      open["smp_options"][degree] = "auto";
      CAPTURE(open.dump());
      CHECK(refusal([&] { planned(read(open)); }) == "");
    }
  }
  CHECK(sharded > files / 50);
  CHECK(without_ddp > files / 50);
}

TEST_CASE("the memory cap bounds the choice of \"auto\" and the search") {
  json file = small_file();
  file["runtime"] = json::object();
  file["mpi_options"] = {{"processes_per_host", 2}};
  file["smp_options"] = {{"pipeline_parallel_degree", "auto"}, {"microbatches", "auto"}};
  const auto bytes = [&] {
    const Config config = read(file);
    const auto made = planned(config);
    return make_forecast(config, made.machines, made.plan).fit.bytes;
  };
  const double free = bytes();
  const auto cap = static_cast<int64_t>(free) - 1;
  file["runtime"]["memory_cap"] = cap;
  CHECK(bytes() <= static_cast<double>(cap));
  const Config config = read(file);
  const auto own = planned(config);
  const auto found = search_layouts(config, config, own, Ranking::time).found;
  REQUIRE_FALSE(found.best.empty());
  for (const auto& best : found.best) CHECK(best.fit.bytes <= static_cast<double>(cap));
}

TEST_CASE("candidates use as many hosts of an allocation as they fill nodes") {
  const TempFolder folder;
  json file = small_file(), cluster = cluster_of(4, 2);
  file["runtime"] = json::object();
  cluster["hourly_price"] = 10;
  file["cluster"] = folder.write("nodes.json", cluster.dump());
  file["training"]["global_batch_size"] = 96;
  const auto hosts_in_use = [&](const char* allocation, Ranking ranking, const Assumptions& assumed = {}) {
    const EnvironmentVariable slurm("SLURM_JOB_NODELIST", allocation);
    const Config config = read(file);
    const auto own = plan_model(config, configured_world_size(config), assumed);
    const auto candidates = search_layouts(config, config, own, ranking, assumed);
    std::set<int> counts;
    for (size_t place = 0; place < candidates.settings.size(); ++place) {
      const auto& best = candidates.found.best[place];
      CAPTURE(to_string(best.layout), json(candidates.settings[place]).dump());
      const Config again = read(file, candidates.settings[place]);
      const auto made = planned(again);
      require_same(best.layout, made.plan.layout, own.model.spec.layers.size());
      CHECK(forecast_step(made.machines, made.plan).seconds == Approx(best.step.seconds).epsilon(1e-9));
      CHECK(used_hosts(again) == own.machines.cluster.nodes_of(best.layout.world()));
      counts.insert(used_hosts(again));
    }
    return counts;
  };
  CHECK(hosts_in_use("n[1-4]", Ranking::time) == std::set<int>{4});
  CHECK(hosts_in_use("n[1-6]", Ranking::time) == std::set<int>{4});
  CHECK(*hosts_in_use("n[1-4]", Ranking::cost).begin() < 4);
  for (const Ranking ranking : {Ranking::time, Ranking::cost, Ranking::memory})
    CHECK(hosts_in_use("n[1-3]", ranking) == std::set<int>{3});
  CHECK(hosts_in_use("n[1-2]", Ranking::time) == std::set<int>{2});
  CHECK_THROWS_WITH(hosts_in_use("n[1-3]", Ranking::time, {.nodes = 4}),
                    Contains("8 ranks are not a multiple of the 3 hosts"));
  file["smp_options"] = {{"pipeline_parallel_degree", 2}, {"microbatches", "auto"}};
  const EnvironmentVariable slurm("SLURM_JOB_NODELIST", "n[1-2]");
  CHECK(planned(read(file)).plan.layout.world() == 4);
}

TEST_CASE("the settings of a candidate are accepted on more devices than one host can have") {
  const TempFolder folder;
  json file = small_file();
  file["runtime"] = json::object();
  file["cluster"] = folder.write("cluster.json", cluster_of(1024, 8).dump());
  file["training"]["global_batch_size"] = 1024 * 8;
  const Config config = read(file);
  const auto own = planned(config);
  const auto candidates = search_layouts(config, config, own, Ranking::memory);
  REQUIRE_FALSE(candidates.settings.empty());
  for (size_t place = 0; place < candidates.settings.size(); ++place) {
    const Layout& wanted = candidates.found.best[place].layout;
    CAPTURE(to_string(wanted), json(candidates.settings[place]).dump());
    const Layout made = planned(read(file, candidates.settings[place])).plan.layout;
    require_same(wanted, made, own.model.spec.layers.size());
    CHECK(made.world() == 1024 * 8);
  }
  file["mpi_options"]["processes_per_host"] = 1024 * 8;
  file["smp_options"]["sharded_data_parallel_degree"] = 1024 * 8;
  CHECK(refusal([&] { planned(read(file)); }) == "");
}

TEST_CASE("\"auto\" uses the measured times of layers, as the search does") {
  json file = small_file();
  file["mpi_options"] = {{"processes_per_host", 4}};
  file["smp_options"] = {{"pipeline_parallel_degree", 1}, {"tensor_parallel_degree", "auto"}, {"microbatches", 2}};
  const Config config = parse_config(file.dump(), "search test");
  Profile profile{
      .valid_for = {{"device", "test"}, {"ranks_per_host", "4"}},
      .device = {.memory_bytes = 1e10,
                 .flops_per_second = 1e10,
                 .memory_bytes_per_second = 1e10,
                 .launch_seconds = 1e-6},
      .layers = {},
      .links = {{.group = "tp", .operation = "all_reduce", .ranks = 2, .bytes = {1000}, .seconds = {1e-6}}}};
  profile.valid_for.merge(job_conditions(config, open_model(config).spec, Precision::fp32));
  const auto chosen = [&] {
    return with_chosen_degrees(config, {.profile = std::make_shared<const Profile>(profile)});
  };
  const Config unmeasured = chosen();
  const auto slow = planned(unmeasured);
  profile.valid_for.merge(layout_conditions(slow.plan.workload, slow.plan.layout));
  for (const auto& layer : slow.model.spec.layers)
    profile.layers.push_back({.name = layer.name,
                              .kind = layer_kind(layer),
                              .forward_seconds = 100,
                              .backward_seconds = 200,
                              .backward_input_seconds = 100,
                              .backward_weight_seconds = 100});
  CHECK(chosen().smp.tensor_parallel_degree != unmeasured.smp.tensor_parallel_degree);
}

TEST_CASE("where \"auto\" finds nothing, the rules are named that leave nothing") {
  json file = small_file();
  file["mpi_options"] = {{"processes_per_host", 4}};
  const auto said = [&](const json& smp) {
    file["smp_options"] = smp;
    return refusal([&] { read(file); });
  };
  CHECK_THAT(said({{"tensor_parallel_degree", "auto"}, {"pipeline_parallel_degree", 3}}),
             Contains("pipeline_parallel_degree must divide the 4 ranks"));
  CHECK_THAT(said({{"tensor_parallel_degree", "auto"}, {"microbatches", 7}}),
             Contains("microbatches must divide the 6 samples of each of 4 replicas"));
  CHECK_THAT(
      said({{"pipeline_parallel_degree", "auto"}, {"pipeline", "interleaved_1f1b"}, {"virtual_pipeline_degree", 9}}),
      Contains("1 stages of 9 chunks need as many layers, but the model has 6"));
  CHECK_THAT(said({{"microbatches", "auto"}, {"sharded_data_parallel_degree", 3}}),
             Contains("the sharding degree must divide the 4 replicas"));
}

}  // namespace shardline::layout_search_test
