// What a config says of its model must reach the run: from the file to the weights that are saved.
#include "engine/model_source.h"

#include <ATen/Functions.h>

#include <set>

#include "engine/job_parts.h"
#include "models/safetensors.h"
#include "tests/engine/tiny_run.h"

#include "tests/catch.h"

using namespace shardline;
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

}  // namespace

TEST_CASE("no_decay_patterns take weight decay off parameters of the model that is planned", "[spec]") {
  const RunFolder folder("no-decay-plan");
  const auto t = GENERATE(1, 2);
  const json layout = {{"smp_options", {{"tensor_parallel_degree", t}}}};
  json excluded = layout;
  excluded["training"] = {{"no_decay_patterns", {"wte", "mlp\\.c_proj"}}};
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
  const auto all = trained(json::array(), "all"), but_positions = trained({"wpe"}, "but-positions");
  const auto same = [&](const std::string& tensor) {
    return at::equal(all.tensor("transformer." + tensor), but_positions.tensor("transformer." + tensor));
  };
  CHECK(same("wte.weight"));
  CHECK(same("h.1.mlp.c_fc.weight"));
  CHECK_FALSE(same("wpe.weight"));
}
