#include "models/families/gpt_neo.h"

#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "models/families/families.h"

#include "tests/catch.h"

namespace shardline::gpt_neo_test {
namespace {

using Catch::Contains;
using nlohmann::json;

ModelSpec spec_of(const json& config) {
  json whole = {{"model_type", "gpt_neo"}};
  whole.update(config);
  return model_spec(whole, "config.json", false);
}

json small(const std::string& attention_types) {
  return {{"num_layers", 3}, {"hidden_size", 48}, {"num_heads", 6}, {"attention_types", json::parse(attention_types)}};
}

}  // namespace

TEST_CASE("an empty config is GPT-Neo with 1.3 billion parameters, under the names of its files") {
  const ModelSpec spec = spec_of(json::object());
  CHECK(spec.parameter_count() == 1315575808);
  CHECK(spec.block_count() == 24);
  CHECK(spec.max_positions == 2048);
  std::set<std::string> tensors;
  for (const auto& layer : spec.layers)
    for (const auto& param : layer.params)
      for (const auto& source : param.sources) tensors.insert(source.tensor);
  CHECK(tensors.size() == 2 + 24 * 13 + 3);
  for (const char* name :
       {"transformer.wpe.weight", "transformer.h.23.attn.attention.q_proj.weight",
        "transformer.h.0.attn.attention.out_proj.bias", "transformer.h.3.mlp.c_fc.weight", "lm_head.weight"})
    CHECK(tensors.contains(name));
}

TEST_CASE("blocks of GPT-Neo with and without a window are of different kinds") {
  const ModelSpec spec = spec_of(small(R"([[["global", "local"], 1], [["global"], 1]])"));
  CHECK(layer_kind(spec.layers[1]) == layer_kind(spec.layers[3]));
  CHECK(layer_kind(spec.layers[1]) != layer_kind(spec.layers[2]));
  const WorkShape shape{.length = 1024};
  CHECK(spec.layers[2].work(shape).flops(Phase::forward) < spec.layers[1].work(shape).flops(Phase::forward));
}

TEST_CASE("attention types of GPT-Neo that do not describe every block are reported") {
  for (const char* types : {R"([[["global", "local"], 2]])", R"([[["global"], 2]])", R"([[["global"], -3]])",
                            R"([["global", "local", "global"]])", R"([[["globl"], 3]])", R"([[[], 1000000000000]])",
                            R"([[["global"], 1000000000000]])", "[]"}) {
    CAPTURE(types);
    CHECK_THROWS_WITH(spec_of(small(types)), Contains("/attention_types") && Contains("3 blocks"));
  }
  CHECK_THROWS_WITH(spec_of({{"num_layers", 3}}), Contains("attention_types"));  // transformers expects 24 blocks, too
  json both = small(R"([[["global"], 3]])");
  both["attention_layers"] = {"global", "global", "global"};
  CHECK_NOTHROW(spec_of(both));
  both["attention_layers"][1] = "local";  // transformers would use this list
  CHECK_THROWS_WITH(spec_of(both), Contains("/attention_layers") && Contains("make them agree"));
  json wrong = small(R"([[["local"], 3]])");
  wrong["hidden_size"] = 50;
  CHECK_THROWS_WITH(spec_of(wrong), Contains("hidden_size (50) must be a multiple of num_heads (6)"));
}

}  // namespace shardline::gpt_neo_test
