// What tensor parallelism splits: by default, by name, and by prices.
#include "engine/plan/tensor_splits.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "engine/commands/parts/job_parts.h"
#include "engine/config/config.h"
#include "partitioner/memory/device_bytes.h"

#include "tests/catch.h"

namespace shardline::tensor_splits_test {

using Catch::Contains;
using nlohmann::json;

namespace {

struct Choice {
  int t = 4;
  json rules = nullptr;
  bool tied = true;
  std::string cluster = "", optimize = "speed";
};

Config config_of(const Choice& c) {
  const json file = {{"model",
                      {{"config",
                        {{"model_type", "gpt2"},
                         {"n_layer", 3},
                         {"n_head", 6},
                         {"n_embd", 96},
                         {"vocab_size", 500},
                         {"n_positions", 64},
                         {"tie_word_embeddings", c.tied}}}}},
                     {"data", {{"train", "unused"}, {"tokenizer", "bytes"}, {"sequence_length", 64}}},
                     {"training", {{"global_batch_size", 8}}},
                     {"smp_options",
                      {{"tensor_parallel_degree", c.t},
                       {"optimize", c.optimize},
                       {"microbatches", 2},
                       {"tensor_parallel_layers", c.rules}}},
                     {"runtime", {{"communicator", c.t == 1 ? "local" : "threads"}}},
                     {"cluster", c.cluster},
                     {"output_dir", "unused"}};
  return parse_config(file.dump(), "splits test");
}

PlannedModel planned(const Choice& c) {
  return plan_model(config_of(c), c.t);
}

// The units that are whole, each with its reason.
std::string whole(const Choice& c) {
  std::string text;
  for (const auto& unit : units_of(planned(c).plan))
    if (!unit.split) text += cat(text.empty() ? "" : "; ", unit.name, ": ", unit.why);
  return text;
}

std::string why(const Choice& c, const std::string& name) {
  return splits_of(planned(c).model.spec).at(name).why;
}

// Four devices whose links have this rate.
std::string cluster_file(double link_gbs, double memory_gib) {
  const auto path = std::filesystem::temp_directory_path() / cat("splits_test_", link_gbs, "_", memory_gib, ".json");
  std::ofstream(path) << json{
      {"name", "test"},
      {"nodes", 1},
      {"devices_per_node", 4},
      {"device",
       {{"name", "test"}, {"memory_gib", memory_gib}, {"memory_bandwidth_gbs", 1000}, {"peak_tflops", {{"fp32", 10}}}}},
      {"intra_node", {{"bandwidth_gbs", link_gbs}, {"latency_us", 0.001}}}};
  return path;
}

json rule(const std::string& pattern, const json& split) {
  return {{"pattern", pattern}, {"split", split}};
}

}  // namespace

TEST_CASE("by default, a unit is split if every rank gets a part") {
  CHECK(whole({.t = 4}).empty());
  CHECK(why({.t = 4}, "h.1.attn") == "6 heads over 4 ranks");
  CHECK(whole({.t = 8}) ==
        "h.0.attn: 6 heads over 8 ranks: some would have none; h.1.attn: 6 heads over 8 ranks: some would have none; "
        "h.2.attn: 6 heads over 8 ranks: some would have none");
  CHECK(units_of(planned({.t = 1}).plan).empty());
  CHECK(plan_json(planned({.t = 8}).plan)["tensor_parallel_units"][1] ==
        json{{"unit", "h.0.attn"},
             {"parts", "heads"},
             {"count", 6},
             {"split", false},
             {"because", "6 heads over 8 ranks: some would have none"}});
  const auto text = plan_text(planned({.t = 8}).plan, 80);
  CHECK_THAT(text, Contains("h.0.attn ... h.2.attn (3)") && Contains("whole") && Contains("500 words over 8 ranks"));
}

TEST_CASE("the bubble is rounded to tenths of a percent") {
  Config config = config_of({.t = 1});
  config.smp.pipeline_parallel_degree = 2;
  config.smp.microbatches = 4;  // (p - 1) / (m + p - 1) is 0.2, a little less in binary
  CHECK_THAT(plan_text(plan_model(config, 2).plan, 80), Contains("bubble 20 % with equal costs"));
}

TEST_CASE("the last entry that names a unit applies, even against the default rule") {
  const json rules = {rule("*mlp", false), rule("h.1.*", true), rule("h.2.attn", false)};
  CHECK(whole({.rules = rules}) ==
        "h.0.mlp: asked for by \"*mlp\"; h.2.attn: asked for by \"h.2.attn\"; "
        "h.2.mlp: asked for by \"*mlp\"");
  CHECK(whole({.t = 8, .rules = {rule("*", true)}}).empty());
  // Whole units take memory on every rank.
  const auto parameters = [](const Choice& c) { return planned(c).plan.parameters_by_rank.front(); };
  CHECK(parameters({.rules = {rule("*mlp", false)}}) - parameters({}) == 3 * 3 * (2 * 96 * 96 + 96));
  CHECK_THROWS_WITH(planned({.rules = {rule("h.3.mlp", false)}}),
                    Contains("tensor_parallel_layers/0") && Contains("did you mean \"h."));
  CHECK_THROWS_WITH(planned({.t = 1, .rules = {rule("h.3.mlp", false)}}), Contains("matches no unit"));
}

TEST_CASE("tied units are split together or not at all") {
  CHECK(whole({.rules = {rule("head.*", false)}}) ==
        "embedding.wte: asked for by \"head.*\"; head.lm_head: asked for by \"head.*\"");
  CHECK(whole({.rules = {rule("head.*", false), rule("embedding.*", "auto")}}) ==
        "embedding.wte: asked for by \"head.*\"; head.lm_head: asked for by \"head.*\"");
  CHECK(whole({.rules = {rule("head.*", false)}, .tied = false}) == "head.lm_head: asked for by \"head.*\"");
  const json apart = {rule("head.*", false), rule("embedding.*", true)};
  CHECK_THROWS_WITH(planned({.rules = apart}), Contains("embedding.wte and head.lm_head have a parameter in common"));
  CHECK(whole({.rules = apart, .tied = false}) == "head.lm_head: asked for by \"head.*\"");
}

TEST_CASE("\"auto\" goes by prices where there are any") {
  const json rules = {rule("*", "auto")};
  CHECK(whole({.rules = rules}).empty());
  CHECK_THAT(why({.rules = rules}, "h.0.mlp"), Contains("\"auto\" needs a cluster or a profile"));
  for (const char* optimize : {"speed", "memory"}) {
    CAPTURE(optimize);
    const Choice slow{.rules = rules, .cluster = cluster_file(0.01, 16), .optimize = optimize};
    const Choice fast{.rules = rules, .cluster = cluster_file(100000, 16), .optimize = optimize};
    CHECK_THAT(why(slow, "h.1.mlp"), Contains("would not pay: in a step its communication takes "));
    if (optimize == std::string("speed")) {
      CHECK_THAT(why(slow, "h.1.attn"), Contains("would not pay"));
      CHECK_THAT(why(fast, "h.1.mlp"), Contains("splitting pays: in a step"));
    }
    CHECK(why(slow, "embedding.wte") == why(slow, "head.lm_head"));
    CHECK(why(slow, "h.0.mlp") == why(slow, "h.2.mlp"));
  }
}

TEST_CASE("\"auto\" does not keep whole what then does not fit") {
  const Choice roomy{.rules = {rule("*mlp", "auto")}, .cluster = cluster_file(0.01, 16)};
  CHECK_THAT(whole(roomy), Contains("h.0.mlp"));
  const double runtime = least_device_bytes({.tensor = roomy.t, .on_accelerators = true}).total() / (1 << 30);
  Choice tight = roomy;
  for (double room = 1; room > 1e-4 && !whole(tight).empty(); room /= 1.1)
    tight.cluster = cluster_file(0.01, runtime + room);
  CHECK_THAT(why(tight, "h.0.mlp"), Contains("does not fit: stage 0 needs"));
}

}  // namespace shardline::tensor_splits_test
