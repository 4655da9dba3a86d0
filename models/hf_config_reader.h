// Reads the config.json of a Hugging Face model: keys under their own or their generic name, all errors at once.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "tensor_parallel/kernels.h"

namespace shardline {

// Each call reads one key, where it is there, into its last argument, which holds the default.
class HfConfigReader {
 public:
  HfConfigReader(const nlohmann::json& config, std::string where);

  // null: what null means; unset: an error. alias may be null.
  void size(const char* key, const char* alias, int64_t& value, std::optional<int64_t> null = {});
  void number(const char* key, double low, double high, double& value);
  void flag(const char* key, bool& value);
  void activation(const char* key, Activation& value);
  void complain(const std::string& key, const std::string& rule, const nlohmann::json& value);
  void finish() const;  // throws a ConfigError with all complaints

 private:
  const nlohmann::json* find(const char* key, const char* alias) const;

  const nlohmann::json& config_;
  std::string where_, errors_;
};

}  // namespace shardline
