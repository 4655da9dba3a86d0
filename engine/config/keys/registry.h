// The list of all config keys. Reading, the resolved config and docs/config.md are derived from it.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/files/json_reader.h"
#include "engine/config/keys/options.h"

namespace shardline {

enum class Status {
  honoured,
  no_effect,  // accepted and listed, because it cannot change numbers or outputs here
  refused,    // only the default is accepted
};

struct Key {
  std::string name;
  JsonType type;
  nlohmann::json default_value;  // null: unset
  Status status = Status::honoured;
  std::string meaning;
  std::string advice = "";                // if not honoured: why, or what to do instead
  std::vector<std::string> aliases = {};  // older spellings of the same value
  std::string writes = "";                // for a shorthand: the key that it gives a value to, as "section.key"
  // For a shorthand: returns the value that it gives that key, or null if it gives none. For other keys: returns null
  // for a value that counts as not given if a shorthand gives one.
  std::function<nlohmann::json(const nlohmann::json&)> means = nullptr;
  // For honoured keys; null for shorthands.
  std::function<void(Config&, const nlohmann::json&)> store = nullptr;
  std::function<nlohmann::json(const Config&)> load = nullptr;

  Key also(std::vector<std::string> spellings) const;
  Key whose_default_is(nlohmann::json value) const;  // for a default that is filled in later
  std::vector<std::string> spellings() const;        // the name, then the aliases
  // Returns the value that the setting has if this key has the given value, which may be null; null: the key does not
  // determine it.
  nlohmann::json meaning_of(const nlohmann::json& value) const;
  // Whether a key that is not honoured may have this value.
  bool is_default(const nlohmann::json& value) const;
};

struct Section {
  std::string name;  // "" is the top level
  std::string meaning;
  std::vector<Key> keys;
};

const std::vector<Section>& config_sections();
// "section.key" with the key's own name or, for a shorthand, with the name of the key that it writes; the same for all
// keys of one setting.
std::string setting_of(const Section& section, const Key& key);
// The key with this full name, which must exist.
const Key& key_named(const std::string& full_name);
// Maps names of Megatron-LM, torchtitan, DeepSpeed and transformers' example scripts, and every key of ours, to
// "section.key".
const JsonHints& spelling_hints();
std::string status_name(Status status);

// The parts of config_sections, one function for each table.
std::vector<Key> top_level_keys();
std::vector<Key> model_keys();
std::vector<Key> data_keys();
std::vector<Key> training_keys();
std::vector<Key> smp_keys();
std::vector<Key> mpi_keys();
std::vector<Key> runtime_keys();

Key shorthand(std::string name, JsonType type, nlohmann::json default_value, std::string writes,
              std::function<nlohmann::json(const nlohmann::json&)> means, std::string meaning);
Key no_effect(std::string name, JsonType type, nlohmann::json default_value, std::string reason);
Key refused(std::string name, nlohmann::json default_value, std::string meaning, std::string advice);

namespace detail {
template <class T>
struct Unwrapped {
  using Type = T;
};
template <class T>
struct Unwrapped<std::optional<T>> {
  using Type = T;
};

template <class T>
inline constexpr bool kIsList = false;
template <class T>
inline constexpr bool kIsList<std::vector<T>> = true;

template <class T>
void store_value(T& field, const nlohmann::json& value) {
  if constexpr (kIsList<T>) {
    const nlohmann::json list = value.is_array() ? value : nlohmann::json::array({value});
    field = list.get<T>();
  } else if constexpr (!std::is_same_v<T, typename Unwrapped<T>::Type>) {
    field = value.is_null() ? T() : T(value.get<typename Unwrapped<T>::Type>());
  } else {
    field = value.get<T>();
  }
}

template <class T>
nlohmann::json load_value(const T& field) {
  if constexpr (!std::is_same_v<T, typename Unwrapped<T>::Type>) {
    return field ? nlohmann::json(*field) : nlohmann::json();
  } else {
    return nlohmann::json(field);
  }
}
}  // namespace detail

// A key that fills one field of one of the option structs; its default is the field's.
// honoured("seed", &Config::training, &TrainingOptions::seed, json_integer(0), "...")
template <class Options, class T>
Key honoured(std::string name, Options Config::*options, T Options::*field, JsonType type, std::string meaning) {
  Key key{.name = std::move(name), .type = std::move(type), .default_value = {}, .meaning = std::move(meaning)};
  key.type.nullable = key.type.nullable || !std::is_same_v<T, typename detail::Unwrapped<T>::Type>;
  key.default_value = detail::load_value(Config().*options.*field);
  key.store = [=](Config& config, const nlohmann::json& value) { detail::store_value(config.*options.*field, value); };
  key.load = [=](const Config& config) { return detail::load_value(config.*options.*field); };
  return key;
}

}  // namespace shardline
