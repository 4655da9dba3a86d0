#include "models/families.h"

#include <map>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "models/gpt2.h"
#include "models/gptj.h"

namespace shardline {
namespace {

using Family = ModelSpec (*)(const nlohmann::json&, const std::string&, bool, const SplitChoices&);

const std::map<std::string, Family>& families() {
  static const std::map<std::string, Family> all = {
      {"gpt2",
       [](const nlohmann::json& config, const std::string& where, bool sequence_parallel, const SplitChoices& choices) {
         return gpt2_spec(gpt2_config(config, where), sequence_parallel, choices);
       }},
      {"gptj",
       [](const nlohmann::json& config, const std::string& where, bool sequence_parallel, const SplitChoices& choices) {
         return gptj_spec(gptj_config(config, where), sequence_parallel, choices);
       }}};
  return all;
}

}  // namespace

ModelSpec model_spec(const nlohmann::json& hf_config, const std::string& where, bool sequence_parallel,
                     const SplitChoices& choices) {
  std::string known;
  for (const auto& [name, family] : families()) known += (known.empty() ? "" : ", ") + name;
  const auto type = hf_config.is_object() ? hf_config.find("model_type") : hf_config.end();
  if (!hf_config.is_object() || type == hf_config.end() || !type->is_string())
    throw ConfigError(cat(where, ": /model_type: must name the model family; known: ", known));
  const auto family = families().find(type->get<std::string>());
  if (family == families().end())
    throw ConfigError(cat(where, ": /model_type: ", type->dump(), " is not known; known: ", known));
  return family->second(hf_config, where, sequence_parallel, choices);
}

}  // namespace shardline
