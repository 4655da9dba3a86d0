#include "models/families/families.h"

#include <map>

#include "core/error.h"
#include "models/families/gpt2.h"
#include "models/families/gpt_neo.h"
#include "models/families/gptj.h"
#include "models/graph/dry_run.h"

namespace shardline {
namespace {

std::map<std::string, Family>& families() {
  static std::map<std::string, Family> all = {{"gpt2", family_of(gpt2_config, gpt2_spec)},
                                              {"gpt_neo", family_of(gpt_neo_config, gpt_neo_spec)},
                                              {"gptj", family_of(gptj_config, gptj_spec)}};
  return all;
}

}  // namespace

void add_family(const std::string& model_type, Family family) {
  families()[model_type] = std::move(family);
}

HfModel read_hf_model(const nlohmann::json& file, const nlohmann::json& overrides, const HeadChoice& head) {
  std::string rule = "must name the model family; known:";
  for (const auto& [name, family] : families()) rule += (rule.ends_with(":") ? " " : ", ") + name;
  HfModel model{.head = head};
  HfConfigReader read(file, overrides);
  std::string type;
  read.text("model_type", type);
  const auto family = families().find(type);
  if (family == families().end()) {
    read.complain({"model_type"}, rule);
  } else {
    family->second(read, model);
    read.finish();
  }
  model.mistakes = read.mistakes();
  model.config = read.merged();
  model.only_saved = read.only_saved();
  return model;
}

ModelSpec model_spec(const nlohmann::json& hf_config, const std::string& where, bool sequence_parallel,
                     const SplitChoices& choices, const std::function<void(ModelSpec&)>& adjust,
                     const HeadChoice& head) {
  if (!hf_config.is_object())
    throw ConfigError(cat(where, ": a model's config must be an object; got ", hf_config.dump()));
  const HfModel model = read_hf_model(hf_config, nlohmann::json::object(), head);
  if (!model.mistakes.empty()) throw ConfigError(mistakes_text(model.mistakes, where + ": ", ""));
  ModelSpec spec = model.make_spec(sequence_parallel, choices);
  if (adjust) adjust(spec);
  add_costs_of_ops(spec);
  return spec;
}

}  // namespace shardline
