#include "engine/config/keys/spellings.h"

#include <map>
#include <set>

#include "core/error.h"

namespace shardline {
namespace {

using nlohmann::json;

// A key that the file gives.
struct Given {
  Place place;
  json value, meaning;

  std::string text() const { return cat(place.section, ".", place.key, " ", value.dump()); }
};

// The keys that the file gives for each setting that has shorthands, the setting's own key first.
std::map<std::string, std::vector<Given>> said_by_setting(const SectionReader& reader) {
  std::map<std::string, std::vector<Given>> said;
  for (const auto& section : config_sections())
    for (const auto& key : section.keys)
      if (!key.writes.empty()) said[key.writes];
  for (const auto& section : config_sections())
    for (const auto& key : section.keys) {
      const auto found = said.find(setting_of(section, key));
      if (found == said.end()) continue;
      for (const auto& spelling : key.spellings()) {
        const json* value = reader(section.name).peek(spelling);
        if (!value) continue;
        const json meaning = key.meaning_of(*value);
        if (meaning.is_null()) continue;
        auto& all = found->second;
        all.insert(key.writes.empty() ? all.begin() : all.end(), {{section.name, spelling}, *value, meaning});
      }
    }
  return said;
}

void check_other_keys(const Config& config, JsonReader& training) {
  const json* accelerator = training.peek("accelerator_config");
  if (accelerator && accelerator->is_object() && accelerator->value("split_batches", json(false)) == true)
    training.fail("accelerator_config",
                  "\"split_batches\" is not supported: it makes per_device_train_batch_size the "
                  "batch of all devices",
                  "give that batch as global_batch_size");
  const json accumulation =
      accelerator && accelerator->is_object() ? accelerator->value("gradient_accumulation_kwargs", json()) : json();
  if (accumulation.is_object() && !accumulation.value("num_steps", json()).is_null())
    training.fail("accelerator_config", "\"num_steps\" is not supported here",
                  "give it as gradient_accumulation_steps");
  if (config.training.use_cpu && config.runtime.device == DeviceChoice::cuda)
    training.fail(training.has("no_cuda") ? "no_cuda" : "use_cpu", "contradicts runtime.device \"cuda\"",
                  "keep one of them");
}

// Checks arguments that transformers passes on to PyTorch's checkpoint.
void check_recompute_arguments(JsonReader& training) {
  static const std::set<std::string> without_effect = {"use_reentrant", "preserve_rng_state", "determinism_check",
                                                       "early_stop", "debug"};
  for (const char* key : {"activation_checkpointing_kwargs", "gradient_checkpointing_kwargs"}) {
    const json* arguments = training.peek(key);
    if (!arguments || !arguments->is_object()) continue;
    for (const auto& [name, value] : arguments->items()) {
      if (name == "every_n_layers" && value != 1)
        training.fail(key, "\"every_n_layers\" is not supported",
                      "list the layers in smp_options.activation_checkpointing");
      else if (name == "offload" && !value.is_boolean())
        training.fail(key, "\"offload\" must be true or false", "set it to one of them");
      else if (name != "every_n_layers" && name != "offload" && !without_effect.contains(name))
        training.fail(key, cat("unknown argument \"", name, '"'), "leave it out");
    }
  }
}

}  // namespace

std::string spelling_in_file(JsonReader& section, const Key& key) {
  std::string used = key.name;
  for (const auto& alias : key.aliases) {
    const json* value = section.peek(alias);
    if (!value || value->is_null()) continue;
    const json* other = section.peek(used);
    const bool unset = !other || (other->is_null() && key.type.nullable);
    if (!unset && *other != *value)
      section.fail(alias, cat("is another name of ", used, ", which has another value (", other->dump(), ")"),
                   "keep one of them");
    if (unset) used = alias;
  }
  return used;
}

Place place_in_file(const std::string& setting, const SectionReader& reader) {
  const auto dot = setting.find('.');
  const Place own = {setting.substr(0, dot), setting.substr(dot + 1)};
  if (reader(own.section).has(own.key)) return own;
  for (const auto& section : config_sections())
    for (const auto& key : section.keys)
      if (setting_of(section, key) == setting)
        for (const auto& spelling : key.spellings())
          if (const json* value = reader(section.name).peek(spelling); value && !key.meaning_of(*value).is_null())
            return {section.name, spelling};
  return own;
}

void check_spellings(const Config& config, const SectionReader& reader) {
  for (const auto& [setting, said] : said_by_setting(reader))
    for (const auto& given : said) {
      if (given.meaning == said.front().meaning) continue;
      const std::string meaning = given.value == given.meaning ? ""
                                                               : cat("means ", setting.substr(setting.find('.') + 1),
                                                                     " ", given.meaning.dump(), " and ");
      reader(given.place.section)
          .fail(given.place.key, cat(meaning, "contradicts ", said.front().text()), "keep one of them");
    }
  JsonReader& training = reader("training");
  check_other_keys(config, training);
  check_recompute_arguments(training);
}

}  // namespace shardline
