#include "engine/import/keys/draft.h"

#include <algorithm>

#include "core/error.h"
#include "core/files/json_text.h"
#include "engine/config/keys/registry.h"
#include "engine/config/rules/checks.h"
#include "engine/import/keys/values.h"

namespace shardline {
namespace {

using nlohmann::json;

constexpr const char* kByUser = "--set";

// Keys below which a job may set single members.
bool is_object_key(const std::string& target, std::string& key, std::string& member) {
  for (const char* object : {"model.config", "training.lr_scheduler_kwargs", "training.dynamic_loss_args"})
    if (const std::string prefix = cat(object, "."); target.starts_with(prefix)) {
      key = object;
      member = target.substr(prefix.size());
      return true;
    }
  return false;
}

const Key* registered(const std::string& target) {
  const auto dot = target.find('.');
  const std::string section = dot == std::string::npos ? "" : target.substr(0, dot);
  const std::string name = dot == std::string::npos ? target : target.substr(dot + 1);
  for (const auto& each : config_sections())
    if (each.name == section)
      for (const auto& key : each.keys)
        if (const auto names = key.spellings(); std::ranges::find(names, name) != names.end()) return &key;
  return nullptr;
}

// Where the value of a key that a job calls `target` is in the config.
std::string place_of(const Key& key, const std::string& target) {
  if (!key.writes.empty()) return key.writes;
  const auto dot = target.find('.');
  return dot == std::string::npos ? key.name : target.substr(0, dot + 1) + key.name;
}

// Why the key does not take this value, and what to do; empty: it does.
std::string mistake_in(const Key& key, const json& value) {
  if (const auto mistake = key.type.mistake(value))
    return cat(mistake->rule, ", not ", json_shown(value), mistake->advice.empty() ? "" : "; ", mistake->advice);
  JsonDocument document{.value = json::object({{key.name, value}}), .file = "", .origins = {}, .problems = {}};
  JsonReader reader(document);
  reader.find(key.name, key.type);
  std::string text;
  report_mistakes([&] { reader.throw_problems(); },
                  [&](const std::string& rule, const std::string& advice) {
                    const std::string place = cat(": /", json_escaped(key.name), ": ");
                    text = cat(rule.starts_with(place) ? rule.substr(place.size()) : rule, "; ", advice);
                  });
  if (!text.empty() || !key.store) return text;
  Config scratch;
  report_mistakes([&] { key.store(scratch, value); },
                  [&](const std::string& rule, const std::string& advice) { text = cat(rule, "; ", advice); });
  return text;
}

}  // namespace

Outcome mapped_to(std::string target, std::string note) {
  return {Fate::mapped, std::move(target), std::move(note)};
}
Outcome neutral(std::string reason) {
  return {Fate::neutral, "", std::move(reason)};
}
Outcome refused(std::string reason) {
  return {Fate::refused, "", std::move(reason)};
}

Draft::Draft(ImportOptions options) : options_(std::move(options)) {
  for (const auto& setting : options_.settings) {
    const auto equals = setting.find('=');
    if (equals == std::string::npos || equals == 0)
      throw ConfigError(cat("--set ", setting, ": must be path=value, as in training.max_steps=10"));
    const std::string target = setting.substr(0, equals);
    const Outcome outcome = give(target, setting.substr(equals + 1), kByUser);
    if (outcome.fate == Fate::refused) throw ConfigError(cat("--set ", setting, ": ", outcome.note));
  }
  for (auto& [target, said] : said_) said.by_user = true;
}

Outcome Draft::give(const std::string& target, const json& given, const std::string& source, const std::string& note) {
  std::string place = target, object, member;
  json value = given;
  if (is_object_key(target, object, member)) {
    value = value_for(json_any(), given);
  } else {
    const Key* key = registered(target);
    if (!key) return refused(cat("there is no key ", target, " in a config; docs/config.md lists them"));
    place = place_of(*key, target);
    value = value_for(key->type, given);
    if (value.is_null()) return neutral("unset");
    if (const std::string mistake = mistake_in(*key, value); !mistake.empty())
      return is_by_user(place) ? replaced_by_user(place) : refused(mistake);
    if (!key->writes.empty()) {
      value = key->meaning_of(value);
      if (value.is_null()) return neutral(cat("says nothing: ", json_shown(given)));
    }
  }
  const auto said = said_.find(place);
  if (said == said_.end()) {
    said_[place] = {value, source};
  } else if (said->second.value != value) {
    if (is_by_user(place)) return replaced_by_user(place);
    return refused(cat("contradicts ", said->second.source, ", which sets ", place, " to ",
                       json_shown(said->second.value), "; keep one of them"));
  }
  return mapped_to(place, note);
}

Outcome Draft::append(const std::string& target, const std::string& words, const std::string& source) {
  const auto said = said_.find(target);
  if (said == said_.end()) return give(target, words, source);
  if (is_by_user(target)) return replaced_by_user(target);
  said->second.value = cat(said->second.value.get<std::string>(), ' ', words);
  return mapped_to(target, "added to the others");
}

void Draft::add(const std::string& target, const json& value, const std::string& reason) {
  if (has(target)) return;
  const Outcome outcome = give(target, value, reason);
  if (outcome.fate == Fate::refused)
    throw ConfigError(cat(target, " ", json_shown(value), " (", reason, "): ", outcome.note));
  if (outcome.fate == Fate::neutral) return;
  additions_.push_back({target, this->value(outcome.target), reason});
}

void Draft::require(const std::string& target, const json& value, const std::string& reason) {
  const auto said = said_.find(target);
  if (said == said_.end()) return;
  const bool is_equal = said->second.value == value;
  if (!is_equal && !said->second.by_user) contradictions_[said->second.source] = reason;
}

bool Draft::is_by_user(const std::string& place) const {
  const auto said = said_.find(place);
  return said != said_.end() && said->second.by_user;
}

Outcome Draft::replaced_by_user(const std::string& place) const {
  return neutral(cat("--set replaces it with ", json_shown(value(place))));
}

int64_t Draft::integer(const std::string& target, int64_t unset) const {
  return has(target) && value(target).is_number_integer() ? value(target).get<int64_t>() : unset;
}

int64_t Draft::processes_per_host() const {
  if (const int64_t given = integer("mpi_options.processes_per_host", 0); given > 0) return given;
  const int hosts = std::max(1, machines.value_or(1));
  if (options_.ranks > 0) return options_.ranks / hosts;
  if (all_processes) return *all_processes / hosts;
  return devices ? std::max(1, *devices) : 0;
}

int64_t Draft::processes() const {
  return processes_per_host() * std::max(1, machines.value_or(1));
}

int64_t Draft::replicas() const {
  const int64_t others =
      integer("smp_options.pipeline_parallel_degree", 1) * integer("smp_options.tensor_parallel_degree", 1);
  return others > 0 ? processes() / others : 0;
}

json Draft::config() const {
  json config = json::object();
  for (const auto& [target, said] : said_) {
    json::json_pointer place;
    std::string object, member;
    if (is_object_key(target, object, member)) {
      const auto dot = object.find('.');
      place = json::json_pointer() / object.substr(0, dot) / object.substr(dot + 1) / member;
    } else if (const auto dot = target.find('.'); dot != std::string::npos) {
      place = json::json_pointer() / target.substr(0, dot) / target.substr(dot + 1);
    } else {
      place = json::json_pointer() / target;
    }
    if (said.value.is_object() && config.contains(place))
      config[place].update(said.value);
    else
      config[place] = said.value;
  }
  return config;
}

}  // namespace shardline
