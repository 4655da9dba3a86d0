// Paths of modules where a config names layers or units.
#include <nlohmann/json.hpp>

#include "engine/config/keys/partition_rules.h"
#include "engine/config/keys/recompute_rules.h"
#include "engine/config/keys/tensor_rules.h"

#include "tests/catch.h"

namespace shardline::module_paths_test {
namespace {

using Catch::Matchers::Contains;
using nlohmann::json;

ParamSpec param(const char* name) {
  return {.name = name, .shape = {1}};
}

ModelSpec spec() {
  const std::vector<ParamSpec> fc = {param("fc.weight")};
  const std::vector<SplitUnit> units = {{"attn"}, {"mlp"}};
  ModelSpec spec;
  spec.layers = {{.name = "embedding", .params = {param("model.words.weight"), param("model.places.weight")}},
                 {.name = "model.encoder.0", .is_block = true, .units = units, .params = fc},
                 {.name = "model.decoder.0", .is_block = true, .units = units, .params = fc},
                 {.name = "model.decoder.1", .is_block = true, .units = units, .params = fc},
                 {.name = "head", .params = {param("model.norm.weight"), param("out.weight")}}};
  return spec;
}

std::string stages(const char* value) {
  std::string text;
  for (const int stage : stages_by_hand(json::parse(value).get<PartitionByHand>(), spec()))
    text += stage < 0 ? "-" : std::to_string(stage);
  return text;
}

std::string recomputed(const char* value) {
  std::string text;
  for (const auto& recompute : recompute_by_layer(json::parse(value).get<RecomputeRules>(), spec()))
    text += to_string(recompute) + " ";
  return text;
}

std::string wishes(const char* value) {
  std::string text;
  for (const auto& [name, rule] : tensor_rules_by_unit(json::parse(value).get<TensorRules>(), spec()))
    text += cat(name, "=", static_cast<int>(rule.wish), " ");
  return text;
}

}  // namespace

TEST_CASE("in manual partitions, a module stands for the layers below it", "[config]") {
  CHECK(stages(R"([{"layers": "model.encoder", "stage": 0}, {"layers": "model.decoder", "stage": 1}])") == "-011-");
  // All of the embedding is in the module, but not all of the head.
  CHECK(stages(R"([{"layers": "model.decoder.1", "stage": 1}, {"layers": "model", "stage": 0}])") == "0001-");
  CHECK_THROWS_WITH(stages(R"([{"layers": "model.encoder.0.fc", "stage": 0}])"),
                    Contains("/smp_options/manual_partition/0: \"model.encoder.0.fc\" is inside model.encoder.0, and "
                             "no part of a layer can be named; write \"model.encoder.0\""));
  CHECK_THROWS_WITH(stages(R"([{"layers": "*", "stage": 0}, {"layers": "out", "stage": 1}])"),
                    Contains("manual_partition/1: \"out\" is inside head, and no part of a layer can be named"));
  CHECK_THROWS_WITH(stages(R"([{"layers": "model.encode", "stage": 0}])"), Contains("matches no layer"));
}

TEST_CASE("in activation_checkpointing, a module stands for the blocks below it", "[config]") {
  CHECK(recomputed(R"([{"layers": "model.decoder", "strategy": "each"}])") == "none none each each none ");
  CHECK(recomputed(R"([{"layers": "model.decoder.0", "strategy": "none"}, {"layers": "model", "strategy": "each"}])") ==
        "none each none each none ");
  CHECK_THROWS_WITH(recomputed(R"([{"layers": "model.decoder.1.mlp", "strategy": "each"}])"),
                    Contains("activation_checkpointing/0: \"model.decoder.1.mlp\" is inside model.decoder.1, and no "
                             "part of a block can be named"));
}

TEST_CASE("in tensor_parallel_layers, a module stands for the units below it", "[config]") {
  CHECK(
      wishes(R"([{"pattern": "model.decoder", "split": false}, {"pattern": "model.decoder.1.mlp", "split": true}])") ==
      "model.decoder.0.attn=1 model.decoder.0.mlp=1 model.decoder.1.attn=1 model.decoder.1.mlp=0 ");
  CHECK_THROWS_WITH(wishes(R"([{"pattern": "model.encoder.0.mlp.fc", "split": false}])"),
                    Contains("is inside model.encoder.0.mlp, and no part of a unit"));
}

}  // namespace shardline::module_paths_test
