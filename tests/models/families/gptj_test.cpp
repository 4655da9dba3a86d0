#include "models/families/gptj.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "models/families/families.h"

#include "tests/catch.h"

namespace shardline::gptj_test {
namespace {

using Catch::Contains;
using nlohmann::json;

ModelSpec spec_of(const json& config, bool sequence_parallel = false, const SplitChoices& choices = {}) {
  json whole = {{"model_type", "gptj"}};
  whole.update(config);
  return model_spec(whole, "config.json", sequence_parallel, choices);
}

std::string complaint(const json& config) {
  try {
    spec_of(config);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

const json kSmall = {{"n_layer", 2}, {"n_embd", 48}, {"n_head", 6}, {"rotary_dim", 4}, {"vocab_size", 61}};

}  // namespace

TEST_CASE("an empty config is GPT-J with 6 billion parameters, under the names of its files") {
  const ModelSpec spec = spec_of(json::object());
  CHECK(spec.parameter_count() == 6050882784);
  CHECK(spec.block_count() == 28);
  CHECK(spec.max_positions == 2048);
  CHECK(spec.vocab_size == 50400);
  std::set<std::string> tensors;
  for (const auto& layer : spec.layers)
    for (const auto& param : layer.params)
      for (const auto& source : param.sources) CHECK(tensors.insert(source.tensor).second);
  CHECK(tensors.size() == 1 + 28 * 10 + 4);
  for (const char* name :
       {"transformer.wte.weight", "transformer.h.27.attn.q_proj.weight", "transformer.h.0.attn.out_proj.weight",
        "transformer.h.3.mlp.fc_in.bias", "transformer.h.3.mlp.fc_out.weight", "transformer.ln_f.bias",
        "lm_head.weight", "lm_head.bias"})
    CHECK(tensors.contains(name));
  const auto& ignored = spec.layers[12].ignored_tensors;
  for (const char* buffer :
       {"transformer.h.11.attn.bias", "h.11.attn.masked_bias", "transformer.h.11.attn.embed_positions"})
    CHECK(std::count(ignored.begin(), ignored.end(), buffer) == 1);
}

TEST_CASE("query, key and value of GPT-J's files are one parameter, split by heads") {
  const ModelSpec spec = spec_of(kSmall);
  const ParamSpec& qkv = spec.param("h.1.attn.qkv.weight");
  CHECK(qkv.shape == std::vector<int64_t>{3, 6, 8, 48});
  CHECK(qkv.split_dim == 1);
  REQUIRE(qkv.sources.size() == 3);
  for (size_t part = 0; part < 3; ++part) {
    CHECK(qkv.sources[part].tensor == std::string("transformer.h.1.attn.") + "qkv"[part] + "_proj.weight");
    CHECK(qkv.sources[part].offset == std::vector<int64_t>{static_cast<int64_t>(part), 0, 0, 0});
    CHECK(qkv.sources[part].shape == std::vector<int64_t>{48, 48});
  }
}

TEST_CASE("weight decay and initial values are HF's: only matrices decay, and all start with the same deviation") {
  for (const auto& layer : spec_of({{"n_layer", 2}, {"initializer_range", 0.04}}).layers)
    for (const auto& param : layer.params) {
      INFO(layer.full_name(param));
      const bool norm = param.name.find("ln_") != std::string::npos;
      const bool matrix = param.name.ends_with(".weight") && !norm;
      CHECK(param.decays == matrix);
      CHECK(param.init.std == (matrix ? 0.04 : 0));
      CHECK((param.init.kind == Init::Kind::ones) == (norm && param.name.ends_with(".weight")));
    }
}

TEST_CASE("GPT-J's parameters are split as documented, and the gradients of whole ones are parts of a sum") {
  for (bool sequence_parallel : {false, true})
    for (const SplitChoices& choices :
         {SplitChoices{}, {{"h.1.attn", {false, ""}}, {"h.0.mlp", {false, ""}}, {"head.lm_head", {false, ""}}}}) {
      const ModelSpec spec = spec_of(kSmall, sequence_parallel, choices);
      for (const auto& layer : spec.layers)
        for (const auto& param : layer.params) {
          const std::string name = layer.full_name(param);
          INFO(name);
          CHECK(param.partial_over_t == (sequence_parallel && param.split_dim < 0));
          const bool unit = param.name.find("ln_") == std::string::npos && param.name != "mlp.proj.bias";
          bool whole = false;
          for (const auto& [chosen, choice] : choices) whole = whole || name.starts_with(chosen + ".");
          CHECK((param.split_dim >= 0) == (unit && !whole));
        }
    }
}

TEST_CASE("a tied head of GPT-J keeps its bias") {
  json tied = kSmall;
  tied["tie_word_embeddings"] = true;
  const ModelSpec spec = spec_of(tied);
  CHECK(spec.param("head.lm_head.weight").tied_to == "embedding.wte.weight");
  CHECK(spec.param("head.lm_head.bias").tied_to.empty());
  CHECK(spec_of(kSmall).parameter_count() == spec.parameter_count() + 61 * 48);
}

TEST_CASE("impossible values in GPT-J's config are reported") {
  const auto with = [](const json& more) {
    json config = kSmall;
    config.update(more);
    return complaint(config);
  };
  CHECK(with(json::object()) == "");
  CHECK(with({{"rotary_dim", nullptr}}) == "");  // all features of a head
  CHECK(with({{"rotary_dim", 8}}) == "");
  CHECK(with({{"n_inner", nullptr}, {"rotary", true}, {"unknown", 3}}) == "");
  CHECK_THAT(with({{"rotary_dim", 3}}), Contains("/rotary_dim: rotary_dim (3) must be even") && Contains("got 3"));
  CHECK_THAT(with({{"rotary_dim", 10}}), Contains("at most the 8 features") && Contains("got 10"));
  CHECK_THAT(with({{"rotary_dim", 0}}), Contains("/rotary_dim: must be an integer >= 1 and <= 16777216; got 0"));
  CHECK_THAT(with({{"n_head", 3}, {"n_embd", 45}, {"rotary_dim", nullptr}}),
             Contains("/rotary_dim: rotary_dim (15) must be even"));
  CHECK_THAT(with({{"n_head", 5}}), Contains("/n_embd: n_embd (48) must be a multiple of n_head (5); got 48"));
  CHECK_THAT(with({{"activation_function", "swiglu"}}), Contains("swiglu"));
  CHECK_THAT(with({{"rotary_dim", 5}, {"n_head", 5}, {"vocab_size", 0}}),
             Contains("/rotary_dim") && Contains("/n_embd") && Contains("/vocab_size"));
  // Without the key, the value is HF's 64.
  CHECK_THAT(complaint({{"n_embd", 48}, {"n_head", 6}}), Contains("rotary_dim (64) must be even"));
}

}  // namespace shardline::gptj_test
