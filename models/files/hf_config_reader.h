// Reads the config of a Hugging Face model: the config.json of a directory with a user's overrides, or either alone. A
// key may have its family's name or a generic one, as in transformers. Values are checked by their JsonType, as in any
// file; this class adds the choice between the two objects and between the names of a key.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/files/json_type.h"
#include "tensor_parallel/kernels/kernels.h"

namespace shardline {

struct HfConfigMistake {
  std::string key;  // as spelled in the file or the overrides
  std::string rule, advice;
  nlohmann::json value;
  bool overridden = false;  // true: from the user's keys; false: from config.json, or a default
  bool of_task = false;     // the mistake is in the job's "task" instead
};

// One line for each mistake. `file` and `overrides` name the two objects ("gpt2/config.json: ").
std::string mistakes_text(const std::vector<HfConfigMistake>& mistakes, const std::string& file,
                          const std::string& overrides);

// Each of the reading functions reads one key, if it exists, into its last argument, which holds the default.
class HfConfigReader {
 public:
  // Both must be objects and outlive the reader. The user's keys override the file's under both names of a key.
  HfConfigReader(const nlohmann::json& file, const nlohmann::json& overrides);

  // null: the value that a JSON null stands for; unset: null is an error. alias may be null.
  void size(const char* key, const char* alias, int64_t& value, std::optional<int64_t> null = {});
  void number(const char* key, double low, double high, double& value);
  void flag(const char* key, bool& value);
  void text(const char* key, std::string& value);
  void activation(const char* key, Activation& value);
  void any(const char* key, const JsonType& type, nlohmann::json& value);
  // Accepts keys that have no effect here.
  void accept(const std::vector<std::string>& keys);
  // Accepts a key that has no effect here but would have one in transformers: a user may set it only to these values
  // (or null).
  void accept_only(const char* key, const std::vector<nlohmann::json>& values, const std::string& advice);

  // Reports a violated rule between these keys at the first one that the user gave, otherwise at the first one in the
  // file. Reports nothing if one of them is invalid by itself.
  void complain(const std::vector<std::string>& keys, const std::string& rule, const std::string& advice = "");

  // Call it after reading everything: reports the user's unknown keys. A directory's file may contain any others.
  void finish();
  const std::vector<HfConfigMistake>& mistakes() const { return mistakes_; }
  // The user's keys that only affect the saved config.json.
  const std::set<std::string>& only_saved() const { return only_saved_; }
  // All keys; those with two names appear under the family's name.
  const nlohmann::json& merged() const { return merged_; }

 private:
  struct Place {
    std::string spelling;
    bool overridden = false;
    const nlohmann::json* value = nullptr;
  };
  const Place* find(const std::string& key, const char* alias);
  // The value if it exists and has this type; reports a value of another type.
  const nlohmann::json* find_typed(const char* key, const char* alias, const JsonType& type);
  void fail(const Place& place, const std::string& rule, const std::string& advice = "");

  const nlohmann::json& file_;
  const nlohmann::json& overrides_;
  nlohmann::json merged_;
  std::map<std::string, Place> places_;  // where existing keys are, by the family's name
  std::set<std::string> known_, wrong_, only_saved_;
  std::vector<HfConfigMistake> mistakes_;
};

}  // namespace shardline
