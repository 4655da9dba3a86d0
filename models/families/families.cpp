#include "models/families/families.h"

#include <map>

#include "core/error.h"
#include "models/families/gpt2.h"
#include "models/families/gptj.h"

namespace shardline {
namespace {

template <class FamilyConfig>
void describe(HfModel& model, const FamilyConfig& config,
              ModelSpec (*make)(const FamilyConfig&, bool, const SplitChoices&)) {
  model.max_positions = config.n_positions;
  model.make_spec = [config, make](bool sequence_parallel, const SplitChoices& choices) {
    return make(config, sequence_parallel, choices);
  };
}

using Family = void (*)(HfConfigReader&, HfModel&);

const std::map<std::string, Family>& families() {
  static const std::map<std::string, Family> all = {
      {"gpt2", [](HfConfigReader& read, HfModel& model) { describe(model, gpt2_config(read), gpt2_spec); }},
      {"gptj", [](HfConfigReader& read, HfModel& model) { describe(model, gptj_config(read), gptj_spec); }}};
  return all;
}

}  // namespace

HfModel read_hf_model(const nlohmann::json& file, const nlohmann::json& overrides) {
  std::string rule = "must name the model family; known:";
  for (const auto& [name, family] : families()) rule += (rule.ends_with(":") ? " " : ", ") + name;
  HfModel model;
  HfConfigReader read(file, overrides);
  std::string type;
  read.text("model_type", type, rule);
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
                     const SplitChoices& choices) {
  if (!hf_config.is_object())
    throw ConfigError(cat(where, ": a model's config must be an object; got ", hf_config.dump()));
  const HfModel model = read_hf_model(hf_config, nlohmann::json::object());
  if (!model.mistakes.empty()) throw ConfigError(mistakes_text(model.mistakes, where + ": ", ""));
  return model.make_spec(sequence_parallel, choices);
}

}  // namespace shardline
