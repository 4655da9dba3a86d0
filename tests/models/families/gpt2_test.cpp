#include "models/families/gpt2.h"

#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "models/families/families.h"

#include "tests/catch.h"

namespace shardline::gpt2_test {
namespace {

using Catch::Contains;
using nlohmann::json;

ModelSpec spec_of(const json& config, bool sequence_parallel = false) {
  json whole = {{"model_type", "gpt2"}};
  whole.update(config);
  return model_spec(whole, "config.json", sequence_parallel);
}

// Returns the reader's complaint about a config; empty if it accepts the config.
std::string complaint(const json& config) {
  try {
    spec_of(config);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("an empty config is GPT-2 with 124 million parameters, under the names of its files") {
  const ModelSpec spec = spec_of(json::object());
  CHECK(spec.parameter_count() == 124439808);
  CHECK(spec.block_count() == 12);
  CHECK(spec.layers.size() == 14);
  CHECK(spec_of({{"tie_word_embeddings", false}}).parameter_count() == 124439808 + 50257 * 768);
  // As published; n_inner is four times the hidden size where it is null.
  CHECK(spec_of({{"n_embd", 1600}, {"n_layer", 48}, {"n_head", 25}, {"n_inner", nullptr}}).parameter_count() ==
        1557611200);

  std::set<std::string> tensors;
  for (const auto& layer : spec.layers)
    for (const auto& param : layer.params)
      for (const auto& source : param.sources) CHECK(tensors.insert(source.tensor).second);
  CHECK(tensors.size() == 2 + 12 * 12 + 3);
  for (const char* name : {"transformer.wte.weight", "transformer.h.11.attn.c_attn.bias",
                           "transformer.h.0.mlp.c_proj.weight", "transformer.ln_f.bias", "lm_head.weight"})
    CHECK(tensors.contains(name));
}

TEST_CASE("weight decay is HF's: on matrices and tables, not on biases and norms") {
  for (const auto& layer : spec_of({{"n_layer", 1}}).layers)
    for (const auto& param : layer.params) {
      INFO(layer.full_name(param));
      const bool matrix = param.name.ends_with(".weight") && param.name.find("ln_") == std::string::npos;
      CHECK(param.decays == matrix);
    }
}

TEST_CASE(
    "only parameters that are whole on every rank can have partial gradients, and only with sequence parallelism") {
  for (bool sequence_parallel : {false, true})
    for (const auto& layer : spec_of({{"n_layer", 2}}, sequence_parallel).layers)
      for (const auto& param : layer.params) {
        INFO(layer.full_name(param));
        CHECK(param.partial_over_t == (sequence_parallel && param.split_dim < 0));
      }
}

TEST_CASE("a unit that stays whole has no split parameter, and partial gradients with sequence parallelism") {
  const SplitChoices choices = {
      {"h.1.attn", {false, "asked"}}, {"h.0.mlp", {false, ""}}, {"embedding.wte", {true, ""}}};
  for (bool sequence_parallel : {false, true}) {
    const ModelSpec spec =
        model_spec({{"model_type", "gpt2"}, {"n_layer", 2}, {"n_head", 6}}, "config.json", sequence_parallel, choices);
    int whole = 0;
    for (const auto& layer : spec.layers)
      for (const auto& param : layer.params) {
        INFO(layer.full_name(param));
        CHECK(param.partial_over_t == (sequence_parallel && param.split_dim < 0));
        const bool matrix = param.name.find("ln_") == std::string::npos && param.name != "wpe.weight" &&
                            param.name != "attn.out.bias" && param.name != "mlp.proj.bias";
        const std::string name = layer.full_name(param);
        const bool chosen = name.starts_with("h.1.attn.") || name.starts_with("h.0.mlp.");
        CHECK((param.split_dim >= 0) == (matrix && !chosen));
        whole += matrix && chosen;
      }
    CHECK(whole == 6);
    std::vector<std::string> units;
    for (const auto& layer : spec.layers)
      for (const auto& unit : layer.units)
        units.push_back(layer.full_name(unit) + (unit.split ? " split " : " whole ") + std::to_string(unit.count) +
                        " " + unit.parts);
    CHECK(units == std::vector<std::string>{"embedding.wte split 50257 words", "h.0.attn split 6 heads",
                                            "h.0.mlp whole 3072 inner features", "h.1.attn whole 6 heads",
                                            "h.1.mlp split 3072 inner features", "head.lm_head split 50257 words"});
    CHECK(spec.layers[2].units[0].why == "asked");
  }
}

TEST_CASE("generic names of keys are read as GPT-2's own") {
  const ModelSpec spec = spec_of({{"num_hidden_layers", 3},
                                  {"hidden_size", 32},
                                  {"num_attention_heads", 8},
                                  {"max_position_embeddings", 40},
                                  {"n_positions", 40}});
  CHECK(spec.block_count() == 3);
  CHECK(spec.max_positions == 40);
  CHECK(spec.param("h.0.attn.qkv.weight").shape == std::vector<int64_t>{3, 8, 4, 32});
  // transformers uses the generic name, whatever the order; two values are a mistake.
  CHECK_THAT(complaint({{"max_position_embeddings", 50}, {"n_positions", 40}}),
             Contains("/max_position_embeddings: contradicts n_positions 40; got 50"));
}

TEST_CASE("the residual stream's weights start smaller, norms at one, biases at zero") {
  const ModelSpec spec = spec_of({{"n_layer", 8}, {"initializer_range", 0.04}});
  CHECK(spec.param("h.0.attn.qkv.weight").init.std == 0.04);
  CHECK(spec.param("h.0.attn.out.weight").init.std == Approx(0.01));
  CHECK(spec.param("h.7.mlp.proj.weight").init.std == Approx(0.01));
  CHECK(spec.param("h.0.ln_1.weight").init.kind == Init::Kind::ones);
  CHECK(spec.param("h.0.mlp.fc.bias").init.kind == Init::Kind::zeros);
}

TEST_CASE("every mistake of a config is reported at once, with its value") {
  const auto text = complaint({{"n_layer", 0},
                               {"n_head", 5},
                               {"resid_pdrop", 1.5},
                               {"tie_word_embeddings", "yes"},
                               {"vocab_size", 3.5},
                               {"add_cross_attention", true}});
  for (const char* part :
       {"/n_layer: must be an integer >= 1 and <= 16777216; got 0",
        "/n_head: n_embd (768) must be a multiple of n_head (5)", "/resid_pdrop", "1.5", "/tie_word_embeddings",
        "\"yes\"", "/vocab_size", "3.5", "/add_cross_attention", "config.json"})
    CHECK_THAT(text, Contains(part));
  CHECK_THAT(complaint({{"activation_function", "swiglu"}, {"n_head", 0}}),
             Contains("config.json: /activation_function: \"swiglu\" is not one of") && Contains("/n_head"));
  CHECK(complaint({{"n_ctx", 7}, {"summary_type", "cls_index"}, {"unknown_key", {1, 2}}}).empty());
}

TEST_CASE("sizes whose products are beyond 64-bit integers are refused") {
  for (const char* key : {"vocab_size", "n_positions", "n_embd", "n_layer", "n_inner"})
    CHECK_THAT(complaint({{key, 4294967296}}),
               Contains(key) && Contains("<= 16777216; got 4294967296; the largest is 16777216"));
  CHECK_THAT(complaint({{"n_embd", 3 << 20}, {"n_layer", 100}}),
             Contains("the blocks would have 1.1") && Contains("more than 1e+15"));
}

TEST_CASE("a small config does not describe millions of layers") {
  const json many = {{"n_embd", 1}, {"n_head", 1}, {"n_layer", 1 << 24}};
  CHECK_THAT(complaint(many), Contains("/n_layer: must be at most 65536; got 16777216"));
}

TEST_CASE("a family that is not known is an error that lists those that are") {
  for (const json& config : {json{{"model_type", "bloom"}}, json::object()})
    CHECK_THROWS_WITH(
        model_spec(config, "config.json", false),
        Contains("known: bert, distilbert, gpt2, gpt_neo, gptj, roberta, xlm-roberta") && Contains("/model_type"));
  CHECK_THROWS_WITH(model_spec({{"model_type", 7}}, "config.json", false),
                    Contains("/model_type: must be a string; got 7"));
  CHECK_THROWS_WITH(model_spec(json::array(), "config.json", false), Contains("config.json: a model's config must be"));
}

}  // namespace shardline::gpt2_test
