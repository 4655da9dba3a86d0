// What a config says about its model must have an effect on the run, from the file to the saved weights.
#include "engine/run/model_source.h"

#include <ATen/Functions.h>

#include <set>

#include "engine/commands/parts/job_parts.h"
#include "engine/config/rules/sizes.h"
#include "models/files/safetensors.h"
#include "tests/engine/tiny_run.h"
#include "tests/models/program/words_program.h"

#include "tests/catch.h"

namespace shardline::model_source_test {

using Catch::Contains;
using nlohmann::json;

namespace {

std::set<std::string> decaying(const RunFolder& folder, const json& changes) {
  const auto config = parse_config(tiny_run(folder, changes).dump(), "run.json");
  std::set<std::string> names;
  for (const auto& layer : plan_model(config, configured_world_size(config)).model.spec.layers)
    for (const auto& param : layer.params)
      if (param.decays) names.insert(layer.full_name(param));
  return names;
}

std::string mistakes_in(const json& file) {
  try {
    open_model(parse_config(file.dump(), "run.json"));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

// A run of a model without weights whose config.json has these keys; `over` is model.config.
json run_of_directory(const RunFolder& folder, json keys, const json& over) {
  keys["model_type"] = "gpt2";
  folder.write("config.json", keys.dump());
  json file = tiny_run(folder);
  file["model"] = {{"path", folder / ""}, {"config", over}, {"init", "random"}};
  return file;
}

const json kSmall = {{"vocab_size", 256}, {"n_positions", 32}, {"n_embd", 16}, {"n_layer", 3}, {"n_head", 4}};

}  // namespace

TEST_CASE("no_decay_patterns exclude parameters of the planned model from weight decay", "[spec]") {
  const RunFolder folder("no-decay-plan");
  const auto t = GENERATE(1, 2);
  const json layout = {{"smp_options", {{"tensor_parallel_degree", t}}}};
  json excluded = layout;
  excluded["training"] = {{"no_decay_patterns", {"*wte*", "*mlp.c_proj*"}}};
  auto expected = decaying(folder, layout);
  for (const char* name : {"embedding.wte.weight", "head.lm_head.weight", "h.0.mlp.proj.weight", "h.1.mlp.proj.weight"})
    CHECK(expected.erase(name) == 1);
  CHECK(expected.contains("h.0.attn.qkv.weight"));
  CHECK(decaying(folder, excluded) == expected);
}

TEST_CASE("no_decay_patterns change what a run trains", "[spec]") {
  const RunFolder folder("no-decay-train");
  const auto trained = [&](const json& patterns, const std::string& name) {
    const json training = {
        {"optim", "sgd"}, {"learning_rate", 0.1}, {"weight_decay", 0.5}, {"no_decay_patterns", patterns}};
    const json smp = {{"tensor_parallel_degree", 2}};
    train_in_process(parse_config(
        tiny_run(folder, {{"training", training}, {"smp_options", smp}, {"output_dir", folder / name}}).dump(),
        "run.json"));
    return SafetensorsFile(folder / (name + "/model.safetensors"));
  };
  const auto all = trained(json::array(), "all"), but_positions = trained({"*wpe*"}, "but-positions");
  const auto same = [&](const std::string& tensor) {
    return at::equal(all.tensor("transformer." + tensor), but_positions.tensor("transformer." + tensor));
  };
  CHECK(same("wte.weight"));
  CHECK(same("h.1.mlp.c_fc.weight"));
  CHECK_FALSE(same("wpe.weight"));
}

TEST_CASE("an unknown key of model.config is refused, and the error suggests the nearest one", "[spec]") {
  const RunFolder folder("unknown-keys");
  const auto with = [&](const json& keys) { return mistakes_in(tiny_run(folder, {{"model", {{"config", keys}}}})); };
  CHECK_THAT(with({{"n_layers", 3}}),
             Contains("run.json: /model/config/n_layers: unknown key; got 3; did you mean n_layer?"));
  CHECK_THAT(with({{"intermediate_size", 48}}),
             Contains("/model/config/intermediate_size: unknown key; got 48; did you mean n_inner?"));
  CHECK_THAT(with({{"rotary_dim", 4}}), Contains("/model/config/rotary_dim: unknown key"));
  const auto of_bert = [&](const json& keys) {
    json file = {{"task", "masked-lm"}, {"model", {{"config", {{"model_type", "bert"}, {"vocab_size", 300}}}}}};
    for (const char* key : {"n_positions", "n_embd", "n_layer", "n_head"}) file["model"]["config"][key] = nullptr;
    file["model"]["config"].update(keys);
    return mistakes_in(tiny_run(folder, file));
  };
  CHECK_THAT(of_bert({{"num_heads", 3}}), Contains("unknown key; got 3; did you mean num_attention_heads?"));
  CHECK_THAT(of_bert({{"n_inner", 48}}), Contains("unknown key; got 48; did you mean intermediate_size?"));
  CHECK_THAT(of_bert({{"layer_norm_epsilon", 1e-6}}), Contains("did you mean layer_norm_eps?"));
  CHECK_THAT(of_bert({{"attn_pdrop", 0.1}}), Contains("did you mean attention_probs_dropout_prob?"));
  CHECK_THAT(of_bert({{"is_encoder_decoder", true}}), Contains("leave it out: this model has no separate encoder"));
  CHECK(with({{"num_hidden_layers", nullptr},
              {"use_cache", false},
              {"bos_token_id", 3},
              {"torch_dtype", "float32"},
              {"architectures", {"GPT2LMHeadModel"}}}) == "");
}

TEST_CASE("keys of model.config with which other programs would train another model are refused, others are noted",
          "[spec]") {
  const RunFolder folder("no-effect-keys");
  const auto run = [&](const json& keys) { return tiny_run(folder, {{"model", {{"config", keys}}}}); };
  const auto with = [&](const json& keys) { return mistakes_in(run(keys)); };
  const auto refused = [&](const char* key, const json& value, const char* advice, const json& beside = {}) {
    json keys = {{key, value}};
    keys.update(beside.is_null() ? json::object() : beside);
    CHECK_THAT(with(keys), Contains(cat("run.json: /model/config/", key, ": has no effect here; got ", value.dump())) &&
                               Contains(advice));
  };
  refused("gradient_checkpointing", true, "set smp_options.activation_checkpointing");
  refused("dtype", "bfloat16", "set training.bf16");
  refused("torch_dtype", "float16", "training.fp16");
  refused("use_bfloat16", true, "set training.bf16");
  refused("is_encoder_decoder", true, "decoder");
  refused("reorder_and_upcast_attn", true, "set training.attention_in_fp32");
  refused("architectures", {"GPT2ForSequenceClassification"}, "causal-lm");
  refused("n_ctx", 512, "set n_positions");
  const json gptj = {{"model_type", "gptj"}, {"rotary_dim", 4}};
  refused("rotary", false, "rotary positions", gptj);
  refused("scale_attn_weights", false, "scales attention", gptj);
  refused("architectures", {"GPT2LMHeadModel"}, "causal-lm", gptj);

  // A config.json that transformers has written may be copied.
  const json pasted = {{"architectures", {"GPT2LMHeadModel"}},
                       {"n_ctx", 32},
                       {"torch_dtype", "float32"},
                       {"gradient_checkpointing", false},
                       {"reorder_and_upcast_attn", false},
                       {"use_cache", true}};
  CHECK(with(pasted) == "");
  const auto lines = notes(parse_config(run(pasted).dump(), "run.json"), false);
  CHECK_THAT(lines, Catch::VectorContains(
                        std::string("model.config: these keys have no effect except in the saved config.json: "
                                    "architectures, gradient_checkpointing, n_ctx, reorder_and_upcast_attn, "
                                    "torch_dtype, use_cache")));
}

TEST_CASE("a key of model.config that contradicts the weights is named", "[spec]") {
  const RunFolder folder("contradicts-weights");
  train_in_process(parse_config(tiny_run(folder).dump(), "run.json"));
  const auto said = [&](const json& keys) {
    json file = tiny_run(folder, {{"output_dir", folder / "out2"}});
    file["model"] = {{"path", folder / "out"}, {"config", keys}};
    try {
      open_model(parse_config(file.dump(), "run.json"));
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(said({{"resid_pdrop", 0.5}}) == "");
  CHECK_THAT(said({{"n_layer", 3}, {"resid_pdrop", 0.5}}),
             Contains("/model/config/n_layer: contradicts the weights in ") &&
                 Contains("got 3; leave it out, or set model.init to \"random\"") && !Contains("resid_pdrop"));
  CHECK(said({{"vocab_size", 300}}) == "");  // training adds rows
  CHECK_THAT(said({{"vocab_size", 200}, {"n_inner", 8}}),
             Contains("/model/config/vocab_size: contradicts") && Contains("/model/config/n_inner: contradicts"));
}

TEST_CASE("a directory's config.json may have keys of its own, which are kept", "[spec]") {
  const RunFolder folder("own-keys");
  json keys = kSmall;
  keys["intermediate_size"] = 48;  // GPT-2 has no such key: transformers keeps and ignores it
  keys["summary"] = {{"of", "mine"}};
  const auto model = open_model(parse_config(run_of_directory(folder, keys, json::object()).dump(), "run.json"));
  CHECK(model.spec.param("h.0.mlp.fc.weight").shape == std::vector<int64_t>{64, 16});
  CHECK(model.hf_config["intermediate_size"] == 48);
  CHECK(model.hf_config["summary"]["of"] == "mine");
}

TEST_CASE("model.config wins over a directory's config.json under either name of a key", "[spec]") {
  const RunFolder folder("aliases");
  json generic = kSmall;
  generic.erase("n_layer");
  generic["num_hidden_layers"] = 3;
  const auto [keys, over] = GENERATE_REF(table<json, json>({{kSmall, {{"num_hidden_layers", 2}}},
                                                            {kSmall, {{"n_layer", 2}}},
                                                            {generic, {{"n_layer", 2}}},
                                                            {generic, {{"num_hidden_layers", 2}}}}));
  CAPTURE(keys, over);
  const auto config = parse_config(run_of_directory(folder, keys, over).dump(), "run.json");
  CHECK(open_model(config).spec.block_count() == 2);
  train_in_process(config);
  const json saved = json::parse(std::ifstream(folder / "out/config.json"));
  CHECK(saved["n_layer"] == 2);
  CHECK_FALSE(saved.contains("num_hidden_layers"));
  std::filesystem::remove_all(folder / "out");
}

TEST_CASE("all mistakes of a config file come at once, those of its model among them", "[spec]") {
  const RunFolder folder("all-mistakes");
  const auto file =
      tiny_run(folder, {{"model", {{"config", {{"activation_function", "swiglu"}, {"n_head", 5}, {"n_layr", 3}}}}},
                        {"training", {{"learning_rat", 1}}},
                        {"smp_options", {{"pipelin", "simple"}}}});
  const auto text = mistakes_in(file);
  for (const char* part :
       {"run.json: /model/config/activation_function: \"swiglu\" is not one of the activations gelu, ",
        "run.json: /model/config/n_embd: n_embd (16) must be a multiple of n_head (5)",
        "run.json: /model/config/n_layr: unknown key", "run.json: /training/learning_rat: unknown key",
        "run.json: /smp_options/pipelin: unknown key"})
    CHECK_THAT(text, Contains(part));
  // Contradictions in the directory's file, and between the file and what overrides it.
  json keys = kSmall;
  keys.update({{"activation_function", "swiglu"}, {"resid_pdrop", 2}});
  const auto of_directory = mistakes_in(run_of_directory(folder, keys, json::object()));
  CHECK_THAT(of_directory, Contains("config.json: /activation_function: ") && Contains("config.json: /resid_pdrop: "));
  CHECK_THAT(mistakes_in(run_of_directory(folder, kSmall, {{"n_head", 3}})),
             Contains("run.json: /model/config/n_head: n_embd (16) must be a multiple of n_head (3); got 3"));
}

TEST_CASE("patterns and degrees that the model does not have are reported together", "[spec]") {
  const RunFolder folder("names");
  const json smp = {{"activation_checkpointing", {{{"layers", "h.9"}, {"strategy", "each"}}}},
                    {"tensor_parallel_layers", {{{"pattern", "h.9.mlp"}, {"split", false}}}},
                    {"sharded_data_parallel_degree", 2}};
  const json changes = {{"smp_options", smp}, {"mpi_options", {{"processes_per_host", 3}}}};
  const auto config = parse_config(tiny_run(folder, changes).dump(), "run.json");
  CHECK_THROWS_WITH(plan_model(config, 3), Contains("/smp_options/activation_checkpointing/0: \"h.9\"") &&
                                               Contains("/smp_options/tensor_parallel_layers/0: \"h.9.mlp\"") &&
                                               Contains("/smp_options/sharded_data_parallel_degree: 2 must divide"));
}

TEST_CASE("an exported program that mixes samples is refused before anything is planned", "[spec]") {
  const RunFolder folder("mixing-program");
  words_program::write_changed_json(folder / "mixing.pt2", "models/model.json", [](json& model) {
    for (auto& node : model["graph_module"]["graph"]["nodes"])
      if (node["target"] == "torch.ops.aten.gelu.default") {
        node["target"] = "torch.ops.aten.flip.default";
        node["inputs"] = {node["inputs"][0], {{"name", "dims"}, {"arg", {{"as_ints", {0}}}}, {"kind", 1}}};
      }
  });
  json file = tiny_run(folder, {{"data", {{"sequence_length", words_program::kPositions}}}});
  file["model"] = {{"path", folder / "mixing.pt2"}};
  const Config config = parse_config(file.dump(), "run.json");
  CHECK_THROWS_WITH(plan_model(config, 1), Contains("mixing.pt2: the call to aten::flip in blocks.0 mixes samples"));
  file["model"] = {{"path", words_program::path()}};
  CHECK(plan_model(parse_config(file.dump(), "run.json"), 1).model.spec.block_count() == 2);
}

TEST_CASE("modules of a program are placed and recomputed by their paths", "[spec]") {
  const RunFolder folder("program-paths");
  const auto plan = [&](const json& smp) {
    json file = tiny_run(folder, {{"data", {{"sequence_length", words_program::kPositions}}},
                                  {"smp_options", {{"pipeline_parallel_degree", 2}, {"microbatches", 2}}},
                                  {"mpi_options", {{"processes_per_host", 2}}}});
    file["model"] = {{"path", words_program::path()}};
    file["smp_options"].merge_patch(smp);
    return plan_model(parse_config(file.dump(), "run.json"), 2).plan;
  };
  const auto by_hand = [](const json& rules) {
    return json{{"auto_partition", false}, {"default_partition", 1}, {"manual_partition", rules}};
  };
  const auto placed = plan(by_hand({{{"layers", "blocks"}, {"stage", 0}}, {{"layers", "embedding"}, {"stage", 0}}}));
  CHECK(placed.stage_of_layer == std::vector{0, 0, 0, 1});
  CHECK_THROWS_WITH(plan(by_hand({{{"layers", "blocks.0.up"}, {"stage", 0}}})),
                    Contains("/smp_options/manual_partition/0: \"blocks.0.up\" is inside blocks.0, and no part of"));
  CHECK_THROWS_WITH(plan(by_hand({{{"layers", "places"}, {"stage", 0}}})),
                    Contains("\"places\" is inside embedding, and no part of a layer can be named"));
  const auto recomputed = plan({{"activation_checkpointing", {{{"layers", "blocks"}, {"strategy", "each"}}}}});
  CHECK(plan_json(recomputed)["recompute"] == plan_json(plan({{"activation_checkpointing", "each"}}))["recompute"]);
  CHECK(plan_json(recomputed)["recompute"] != plan_json(plan(json::object()))["recompute"]);
}

TEST_CASE("a directory with a config and weights in any format holds a model", "[spec]") {
  const RunFolder folder("holds-model");
  for (const char* weights :
       {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    const std::string name = cat(weights, "-directory");
    std::filesystem::create_directory(folder / name);
    folder.write(name + "/" + weights, "");
    CHECK_FALSE(holds_model(folder / name));
    folder.write(name + "/config.json", "{}");
    CHECK(holds_model(folder / name));
  }
}

TEST_CASE("the model of a run that trained an exported program is a file", "[spec]") {
  const RunFolder folder("program-output");
  folder.write("model.pt2", "");
  folder.write("config.json", R"({"exported_program": "heads.pt2"})");
  CHECK(path_of_model(folder / "") == folder / "model.pt2");
  json file = tiny_run(folder);
  file["model"] = {{"path", folder / ""}};
  CHECK_THAT(mistakes_in(file), Contains("holds an exported program; name its file, for instance --set model.path=") &&
                                    Contains("model.pt2"));
  folder.write("config.json", R"({"model_type": "gpt2"})");
  CHECK(path_of_model(folder / "") == folder / "");
}

TEST_CASE("a directory is evaluated with samples that its positions allow", "[spec]") {
  const RunFolder folder("directory");
  json keys = kSmall;
  keys["model_type"] = "gpt2";
  folder.write("config.json", keys.dump());
  CHECK(config_of_directory(folder / "", {}).data.sequence_length == 32);
  CHECK(config_of_directory(folder / "", {"data.sequence_length=8"}).data.sequence_length == 8);
  CHECK_THROWS_WITH(config_of_directory(folder / "", {"data.sequence_length=64"}),
                    Contains("/data/sequence_length: must be at most the number of the model's positions (32)"));
}

TEST_CASE("samples longer than the model's positions are an error in the config", "[spec]") {
  const RunFolder folder("positions");
  const auto text =
      mistakes_in(tiny_run(folder, {{"data", {{"sequence_length", 64}}}, {"training", {{"optm", "sgd"}}}}));
  CHECK_THAT(text, Contains("run.json: /training/optm: unknown key"));
  CHECK_THAT(text,
             Contains("run.json: /data/sequence_length: must be at most the number of the model's positions (32); "
                      "got 64"));
}

TEST_CASE("commands that do not train take samples that the model's positions allow", "[spec]") {
  const RunFolder folder("default-positions");
  json run = {{"model", {{"config", kSmall}}}, {"data", {{"tokenizer", "bytes"}}}, {"output_dir", folder / "out"}};
  run["model"]["config"]["model_type"] = "gpt2";
  CHECK(parse_config(run.dump(), "serve.json", {}, Purpose::other).data.sequence_length == 32);
  CHECK_THROWS_WITH(parse_config(run.dump(), "serve.json", {"data.sequence_length=64"}, Purpose::other),
                    Contains("must be at most the number of the model's positions (32)"));
}

}  // namespace shardline::model_source_test
