#include "engine/config/config.h"

#include "core/error.h"
#include "core/files/json_reader.h"
#include "engine/config/checks.h"
#include "engine/config/keys/forms.h"
#include "engine/config/keys/registry.h"
#include "engine/config/keys/spellings.h"
#include "engine/config/rules/optimizer_rules.h"
#include "engine/config/rules/partition_rules.h"
#include "engine/config/rules/precision_rules.h"

namespace shardline {
namespace {

using nlohmann::json;

// The spelling of a key that the file uses, or its name. Two spellings with different values are a contradiction;
// a null under an older spelling is the same as not given.
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

void read_key(JsonReader& reader, const Section& section, const Key& key, Config& config) {
  const std::string name = spelling_in_file(reader, key);
  if (key.status == Status::not_yet || key.status == Status::refused) {
    const json* value = reader.peek(name);
    if (value && !key.is_default(*value))
      reader.fail(name, key.status == Status::refused ? "not supported" : "not supported yet", key.advice);
    return;
  }
  const json* value = reader.find(name, key.type);
  if (!value) return;
  if (key.status == Status::honoured) {
    key.store(config, *value);
  } else {
    const bool secret = key.name == "hub_token" || key.name == "push_to_hub_token";  // resolved configs are shared
    config.no_effect[section.name][key.name] = secret ? json() : *value;
  }
}

void read_section(JsonReader& reader, const Section& section, Config& config) {
  for (const auto& key : section.keys) read_key(reader, section, key, config);
}

// Defaults that depend on other keys.
void fill_defaults(Config& config) {
  if (config.model.init.empty()) config.model.init = config.model.path.empty() ? "random" : "pretrained";
  if (!config.training.global_batch_size) {
    config.training.per_device_train_batch_size = config.training.per_device_train_batch_size.value_or(8);
    config.training.gradient_accumulation_steps = config.training.gradient_accumulation_steps.value_or(1);
  }
  if (config.training.use_cpu && config.runtime.device == "auto") config.runtime.device = "cpu";
}

struct Readers {
  JsonReader root, model, data, training, smp, mpi, runtime;
  std::optional<JsonReader> data_parallel;  // of SageMaker's distribution object, where it is enabled

  JsonReader& of(const std::string& section) {
    if (section == "model") return model;
    if (section == "data") return data;
    if (section == "training") return training;
    if (section == "smp_options") return smp;
    if (section == "mpi_options") return mpi;
    if (section == "runtime") return runtime;
    return root;
  }
};

Readers open_sections(const JsonDocument& document) {
  JsonReader root(document, spelling_hints());
  WrappedSections wrapped = unwrap_sections(root);
  root.peek("derived");
  JsonReader model = root.child("model"), data = root.child("data"), training = root.child("training"),
             runtime = root.child("runtime");
  return {root, model, data, training, wrapped.smp, wrapped.mpi, runtime, std::move(wrapped.data_parallel)};
}

// Each rule is looked at where its sections were read without a mistake: a slip must not look like a contradiction.
void check_between_keys(Readers& readers, const Config& config) {
  const Complaint complain = [&](const std::string& key, const std::string& rule, const std::string& advice) {
    const std::string of_model = "model.config.";
    if (key.starts_with(of_model)) return readers.model.child("config").fail(key.substr(of_model.size()), rule, advice);
    const auto dot = key.find('.');
    JsonReader& reader = readers.of(key.substr(0, dot));
    std::string name = key.substr(dot + 1);
    if (name == "pipeline_parallel_degree" && !reader.has(name) && reader.has("partitions")) name = "partitions";
    reader.fail(name, rule, advice);
  };
  const json* output_dir = readers.root.peek("output_dir");
  if (!output_dir || *output_dir == "")
    readers.root.fail("output_dir", "is required", "set it to the directory that the run writes to");
  const bool model = readers.model.clean(), data = readers.data.clean(), training = readers.training.clean();
  const bool layout = readers.smp.clean() && readers.mpi.clean();
  const bool runtime = readers.runtime.clean();
  if (model && data) check_model_and_data(config, complain);
  if (model && data) check_model_config(config, complain);
  if (training) check_training(config, complain);
  if (training && layout && runtime) check_precision(config, complain);
  if (training && layout && runtime) check_spellings(config, readers.training, readers.smp);
  if (training && runtime) check_determinism(config, complain);
  if (training && data) check_evaluation(config, complain);
  if (layout) check_layout(config, complain);
  if (layout && runtime) check_processes(config, complain);
  const bool open = layout && check_auto(config, complain);
  if (layout && training && !open) check_sizes(config, configured_world_size(config), complain);
}

Config read_document(const JsonDocument& document) {
  Config config;
  Readers readers = open_sections(document);
  for (const auto& section : config_sections()) read_section(readers.of(section.name), section, config);
  if (readers.data_parallel && readers.smp.clean() && readers.mpi.clean())
    enable_data_parallelism(*readers.data_parallel, config);
  fill_defaults(config);
  const bool a_section_may_be_missing = readers.root.report_unknown_keys();
  for (JsonReader* section :
       {&readers.model, &readers.data, &readers.training, &readers.smp, &readers.mpi, &readers.runtime})
    section->report_unknown_keys();
  if (!a_section_may_be_missing) check_between_keys(readers, config);
  readers.root.throw_problems();
  return config;
}

Config read_with_overrides(JsonDocument document, const std::vector<std::string>& overrides) {
  for (const auto& assignment : overrides) apply_override(document, assignment);
  return read_document(document);
}

}  // namespace

Config read_config(const std::string& path, const std::vector<std::string>& overrides) {
  return read_with_overrides(read_json_file(path), overrides);
}

Config parse_config(const std::string& text, const std::string& file, const std::vector<std::string>& overrides) {
  return read_with_overrides(parse_json(text, file), overrides);
}

json resolved(const Config& config, const json& derived) {
  json file = config.no_effect;
  for (const auto& section : config_sections()) {
    for (const auto& key : section.keys) {
      if (!key.load) continue;
      (section.name.empty() ? file : file[section.name])[key.name] = key.load(config);
    }
  }
  if (!derived.is_null()) file["derived"] = derived;
  return file;
}

std::vector<std::string> notes(const Config& config, c10::Device device) {
  std::vector<std::string> lines;
  for (const auto& section : config_sections()) {
    const json given = config.no_effect.value(section.name, json::object());
    for (const auto& key : section.keys)
      if (given.contains(key.name)) lines.push_back(cat(section.name, ".", key.name, " has no effect: ", key.advice));
  }
  const auto unused = [&](bool given, const char* key, const char* why) {
    if (given) lines.push_back(cat("smp_options.", key, " has no effect: ", why));
  };
  const bool cut_here = config.smp.auto_partition && !config.smp.load_partition;
  unused(config.smp.default_partition && config.smp.auto_partition, "default_partition",
         "only used with auto_partition false");
  unused(config.smp.default_partition && !partition_by_hand(config.smp.manual_partition).blocks.empty(),
         "default_partition", "manual_partition gives the number of blocks of each stage");
  unused(config.smp.memory_weight && !cut_here, "memory_weight", "only used where the planner places the layers");
  unused(config.smp.offload_optimizer_states && !states_on_host(config.smp, !device.is_cpu()),
         "offload_optimizer_states", "CPU ranks have them in the host's memory anyway");
  if (config.smp.offload_activations && config.smp.activation_checkpointing == "none" &&
      config.smp.offload_scope == "checkpointed")
    lines.push_back(
        "smp_options.offload_activations has no effect: without activation_checkpointing nothing is moved unless "
        "offload_scope is \"all\"");
  for (const auto& [given, key] : {std::pair{config.training.fp32_residual_addition, "fp32_residual_addition"},
                                   {config.training.attention_in_fp32, "attention_in_fp32"}})
    if (given && precision_of(config) == Precision::fp32)
      lines.push_back(cat("training.", key, " has no effect: only used with bf16 or fp16"));
  if (config.training.save_strategy != "no")
    lines.push_back("training.save_strategy \"steps\": only the final model is saved, nothing during training");
  return lines;
}

std::vector<std::string> settings_between(const Config& from, const Config& to) {
  std::vector<std::string> settings;
  const json before = resolved(from), after = resolved(to);
  for (const auto& [section, keys] : after.items()) {
    if (!keys.is_object()) continue;
    for (const auto& [key, value] : keys.items())
      if (const json& old = before[section].value(key, json()); old != value)
        settings.push_back(cat(section, ".", key, "=", value.is_string() ? value.get<std::string>() : value.dump()));
    for (const auto& [key, value] : before[section].items())
      if (!value.is_null() && !keys.contains(key)) settings.push_back(cat(section, ".", key, "=null"));
  }
  return settings;
}

}  // namespace shardline
