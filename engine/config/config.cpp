#include "engine/config/config.h"

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/files/json_reader.h"
#include "engine/config/keys/forms.h"
#include "engine/config/keys/registry.h"
#include "engine/config/keys/spellings.h"
#include "engine/config/rules/checks.h"
#include "engine/config/rules/model_rules.h"
#include "engine/config/rules/needs.h"
#include "engine/config/rules/saving_rules.h"

namespace shardline {
namespace {

using nlohmann::json;

void read_key(JsonReader& reader, const Section& section, const Key& key, Config& config) {
  const std::string name = spelling_in_file(reader, key);
  if (key.status == Status::refused) {
    const json* value = reader.peek(name);
    if (value && !key.is_default(*value)) reader.fail(name, "not supported", key.advice);
    return;
  }
  const json* value = reader.find(name, key.type);
  if (!value) return;
  const auto store = [&](const Key& setting, const json& meaning) {
    report_mistakes([&] { setting.store(config, meaning); },
                    [&](const auto& rule, const auto& advice) { reader.fail(name, rule, advice); });
  };
  if (!key.writes.empty()) {
    if (const json meaning = key.meaning_of(*value); !meaning.is_null()) store(key_named(key.writes), meaning);
  } else if (key.status == Status::honoured) {
    store(key, *value);
  } else {
    const bool secret = key.name == "hub_token" || key.name == "push_to_hub_token";  // others may read it
    config.no_effect[section.name][key.name] = secret ? json() : *value;
  }
}

void read_section(JsonReader& reader, const Section& section, Config& config) {
  for (const auto& key : section.keys) read_key(reader, section, key, config);
}

// Defaults that depend on other keys.
void fill_defaults(Config& config) {
  if (!config.training.global_batch_size) {
    config.training.per_device_train_batch_size = config.training.per_device_train_batch_size.value_or(8);
    config.training.gradient_accumulation_steps = config.training.gradient_accumulation_steps.value_or(1);
  }
  if (config.training.use_cpu && config.runtime.device == DeviceChoice::automatic)
    config.runtime.device = DeviceChoice::cpu;
}

struct Readers {
  JsonReader root, model, data, training, smp, mpi, runtime;
  std::optional<JsonReader> data_parallel;  // "dataparallel" of SageMaker's distribution object, if there is one

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
  root.peek("$schema");  // editors look up the schema there
  JsonReader model = root.child("model"), data = root.child("data"), training = root.child("training"),
             runtime = root.child("runtime");
  return {root, model, data, training, wrapped.smp, wrapped.mpi, runtime, std::move(wrapped.data_parallel)};
}

// Checks each rule only if its sections were read without a mistake: a misspelled key must not look like a
// contradiction.
void check_between_keys(Readers& readers, const Config& config, Purpose purpose) {
  const SectionReader reader = [&](const std::string& section) -> JsonReader& { return readers.of(section); };
  const Complaint complain = [&](const std::string& key, const std::string& rule, const std::string& advice) {
    const std::string of_model = "model.config.";
    if (key.starts_with(of_model)) return readers.model.child("config").fail(key.substr(of_model.size()), rule, advice);
    const Place place = place_in_file(key, reader);
    reader(place.section).fail(place.key, rule, advice);
  };
  const auto gives = [&](const std::string& name) {
    const Key& key = key_named(name);
    const Place place = place_in_file(name, reader);
    const json* value = reader(place.section).peek(place.key);
    return value && !value->is_null() && *value != key.default_value;
  };
  const json* output_dir = readers.root.peek("output_dir");
  if ((!output_dir || *output_dir == "") && config.data.format != DataFormat::memory)
    readers.root.fail("output_dir", "is required", "set it to the directory that the run writes to");
  const bool model = readers.model.clean(), data = readers.data.clean(), training = readers.training.clean();
  if (readers.mpi.clean()) check_ranks_of_host(config, complain);
  const bool layout = readers.smp.clean() && readers.mpi.clean();
  const bool runtime = readers.runtime.clean();
  if (data && purpose == Purpose::training) check_has_data(config, complain);
  if (model && data) check_model_and_data(config, complain);
  if (model && data) check_model_config(config, complain);
  if (training) check_training(config, complain);
  if (training && layout && runtime) check_precision(config, complain);
  if (training && layout && runtime) check_spellings(config, reader);
  if (training && layout && data) check_needs(config, gives, complain);
  if (training && runtime) check_determinism(config, complain);
  if (training && data) check_evaluation(config, complain);
  if (training) check_saving(config, complain);
  if (layout) check_layout(config, complain);
  if (layout && runtime) check_processes(config, complain);
  const bool open = layout && check_auto(config, complain);
  if (!layout || !training || open) return;
  check_sizes(config, configured_world_size(config), complain);
  if (readers.data_parallel)
    check_data_parallelism(
        *readers.data_parallel, config,
        configured_world_size(config) / (config.smp.pipeline_parallel_degree * config.smp.tensor_parallel_degree));
}

// Commands that do not train do not require data.sequence_length: by default, it is at most the model's positions.
void fit_default_length(Readers& readers, Config& config) {
  if (readers.data.peek("sequence_length") || !readers.model.clean() || !readers.data.clean()) return;
  const auto model = described_model(config.model, head_choice(config));
  if (model && model->mistakes.empty())
    config.data.sequence_length = std::min<int64_t>(config.data.sequence_length, model->max_positions);
}

Config read_document(const JsonDocument& document, Purpose purpose) {
  Config config;
  Readers readers = open_sections(document);
  for (const auto& section : config_sections()) read_section(readers.of(section.name), section, config);
  if (readers.data_parallel && readers.smp.clean() && readers.mpi.clean())
    apply_data_parallelism(*readers.data_parallel, config);
  fill_defaults(config);
  const bool a_section_may_be_missing = readers.root.report_unknown_keys();
  for (JsonReader* section :
       {&readers.model, &readers.data, &readers.training, &readers.smp, &readers.mpi, &readers.runtime})
    section->report_unknown_keys();
  if (purpose == Purpose::other) fit_default_length(readers, config);
  if (!a_section_may_be_missing) check_between_keys(readers, config, purpose);
  readers.root.throw_problems();
  return config;
}

Config read_with_overrides(JsonDocument document, const std::vector<std::string>& overrides, Purpose purpose) {
  for (const auto& assignment : overrides) apply_override(document, assignment);
  return read_document(document, purpose);
}

}  // namespace

Config read_config(const std::string& path, const std::vector<std::string>& overrides, Purpose purpose) {
  return read_with_overrides(read_json_file(path), overrides, purpose);
}

Config parse_config(const std::string& text, const std::string& file, const std::vector<std::string>& overrides,
                    Purpose purpose) {
  return read_with_overrides(parse_json(text, file), overrides, purpose);
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

std::vector<std::string> notes(const Config& config, bool on_accelerators) {
  std::vector<std::string> lines;
  for (const auto& section : config_sections()) {
    const json given = config.no_effect.value(section.name, json::object());
    for (const auto& key : section.keys)
      if (given.contains(key.name)) lines.push_back(cat(section.name, ".", key.name, " has no effect: ", key.advice));
  }
  for (const auto& line : keys_without_effect(config, on_accelerators)) lines.push_back(line);
  if (config.data.validation_split_percentage > 0 && config.training.eval_strategy == EvalStrategy::no &&
      !config.training.eval_on_start && !config.training.do_eval)
    lines.push_back(cat("data.validation_split_percentage ", config.data.validation_split_percentage,
                        ": the run neither trains nor evaluates on that share of the samples; set "
                        "training.eval_strategy or training.do_eval, or leave it out"));
  if (const auto model = described_model(config.model, head_choice(config)); model && !model->only_saved.empty()) {
    std::string keys;
    for (const auto& key : model->only_saved) keys += cat(keys.empty() ? "" : ", ", key);
    lines.push_back(cat("model.config: these keys have no effect except in the saved config.json: ", keys));
  }
  return lines;
}

std::vector<std::string> settings_between(const Config& from, const Config& to) {
  std::vector<std::string> settings;
  const json before = resolved(from), after = resolved(to);
  // The file may use a shorthand for a setting that `to` does not allow.
  std::set<std::string> given_again;
  for (const auto& shorthand : shorthands_refused_after(from, to)) {
    settings.push_back(shorthand + "=null");
    given_again.insert(key_named(shorthand).writes);
  }
  for (const auto& [section, keys] : after.items()) {
    if (!keys.is_object()) continue;
    for (const auto& [key, value] : keys.items())
      if (const std::string name = section + "." + key;
          before[section].value(key, json()) != value || given_again.contains(name))
        settings.push_back(cat(name, "=", value.is_string() ? value.get<std::string>() : value.dump()));
    for (const auto& [key, value] : before[section].items())
      if (!value.is_null() && !keys.contains(key)) settings.push_back(cat(section, ".", key, "=null"));
  }
  return settings;
}

}  // namespace shardline
