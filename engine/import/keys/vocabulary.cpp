#include "engine/import/keys/vocabulary.h"

#include <algorithm>
#include <set>

#include "core/error.h"
#include "engine/config/keys/registry.h"
#include "engine/import/keys/values.h"

namespace shardline {
namespace {

using nlohmann::json;

std::vector<std::string> steps_of(const std::string& name) {
  std::vector<std::string> steps(1);
  for (const char c : name) {
    if (c == '.')
      steps.emplace_back();
    else
      steps.back() += c;
  }
  return steps;
}

bool fits(const std::string& step, const std::string& given, bool names_vary) {
  return step == "*" || step == given || (names_vary && step == plain_name(given));
}

// Whether the key's name begins with these steps.
bool begins(const ForeignKey& key, const std::vector<std::string>& given, bool names_vary) {
  const auto steps = steps_of(key.name);
  if (steps.size() < given.size()) return false;
  for (size_t i = 0; i < given.size(); ++i)
    if (!fits(steps[i], given[i], names_vary)) return false;
  return true;
}

ForeignKey key_of_section(const Section& section, const Key& key, const std::string& spelling) {
  const std::string target = section.name + "." + spelling;
  if (key.status == Status::honoured) return maps(spelling, target);
  if (key.status == Status::no_effect) return ignores(spelling, key.advice);
  const auto is_default = [value = key.default_value](const json& given) {
    return (value.is_null() || value == false) ? is_off(given) : value_for(json_any(), given) == value;
  };
  return {.name = spelling,
          .fate = Fate::refused,
          .target = "",
          .note = key.advice,
          .read = [advice = key.advice, is_default](const Given& given, Draft&) {
            if (!is_default(given.value)) return refused(advice);
            return neutral(is_off(given.value) ? "asks for nothing" : "is the default, and what shardline does");
          }};
}

}  // namespace

json Given::at(const std::vector<std::string>& place) const {
  const json* here = &root;
  for (const auto& step : place) {
    if (here->is_object() && here->contains(step)) {
      here = &(*here)[step];
    } else if (here->is_array() && !step.empty() && step.size() < 10 &&
               step.find_first_not_of("0123456789") == std::string::npos && std::stoul(step) < here->size()) {
      here = &(*here)[std::stoul(step)];
    } else {
      return nullptr;
    }
  }
  return *here;
}

ForeignKey ForeignKey::in_phase(int number) const {
  ForeignKey key = *this;
  key.phase = number;
  return key;
}

const ForeignKey* Vocabulary::find(const std::vector<std::string>& steps) const {
  for (const auto* list : {&keys, &own_keys})
    for (const auto& key : *list)
      if (begins(key, steps, names_vary) && steps_of(key.name).size() == steps.size()) return &key;
  return nullptr;
}

bool Vocabulary::has_below(const std::vector<std::string>& steps) const {
  return std::ranges::any_of(keys, [&](const ForeignKey& key) {
    return steps_of(key.name).size() > steps.size() && begins(key, steps, names_vary);
  });
}

std::vector<std::string> Vocabulary::names_at(size_t depth) const {
  std::set<std::string> names;
  for (const auto* list : {&keys, &own_keys})
    for (const auto& key : *list)
      if (const auto steps = steps_of(key.name); steps.size() > depth && steps[depth] != "*")
        names.insert(steps[depth]);
  return {names.begin(), names.end()};
}

ForeignKey maps(std::string name, std::string target, std::string note) {
  return {.name = std::move(name), .target = std::move(target), .note = std::move(note)};
}

ForeignKey reads(std::string name, std::string target, std::string note,
                 std::function<Outcome(const Given&, Draft&)> read) {
  return {.name = std::move(name), .target = std::move(target), .note = std::move(note), .read = std::move(read)};
}

ForeignKey ignores(std::string name, std::string reason) {
  return {.name = std::move(name), .fate = Fate::neutral, .target = "", .note = std::move(reason)};
}

ForeignKey refuses(std::string name, std::string advice, json usual) {
  ForeignKey key{.name = std::move(name), .fate = Fate::refused, .target = "", .note = std::move(advice)};
  key.usual = std::move(usual);
  key.read = [advice = key.note, usual = key.usual](const Given& given, Draft&) {
    const bool asks = !is_off(given.value) && (usual.is_null() || value_for(json_any(), given.value) != usual);
    return asks ? refused(advice) : neutral("asks for nothing");
  };
  return key;
}

ForeignKey holds(std::string name, const Vocabulary& (*inner)(), std::string note) {
  return {.name = std::move(name), .target = "", .note = std::move(note), .read = nullptr, .inner = inner};
}

std::vector<ForeignKey> keys_of_section(const std::string& name) {
  std::vector<ForeignKey> keys;
  for (const auto& section : config_sections())
    if (section.name == name)
      for (const auto& key : section.keys)
        for (const auto& spelling : key.spellings()) keys.push_back(key_of_section(section, key, spelling));
  return keys;
}

}  // namespace shardline
