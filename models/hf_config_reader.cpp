#include "models/hf_config_reader.h"

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace shardline {

using nlohmann::json;

HfConfigReader::HfConfigReader(const json& config, std::string where) : config_(config), where_(std::move(where)) {
  if (!config.is_object()) throw ConfigError(cat(where_, ": must be a JSON object; got ", config.dump()));
}

void HfConfigReader::size(const char* key, const char* alias, int64_t& value, std::optional<int64_t> null) {
  const json* found = find(key, alias);
  if (!found) return;
  if (null && found->is_null()) {
    value = *null;
    return;
  }
  if (!found->is_number_integer() || found->get<int64_t>() < 1 || found->get<int64_t>() > (int64_t{1} << 40))
    return complain(key, "must be an integer of at least 1", *found);
  value = found->get<int64_t>();
}

void HfConfigReader::number(const char* key, double low, double high, double& value) {
  const json* found = find(key, nullptr);
  if (!found) return;
  if (!found->is_number() || found->get<double>() < low || found->get<double>() > high)
    return complain(key, cat("must be a number from ", low, " to ", high), *found);
  value = found->get<double>();
}

void HfConfigReader::flag(const char* key, bool& value) {
  const json* found = find(key, nullptr);
  if (!found) return;
  if (!found->is_boolean()) return complain(key, "must be true or false", *found);
  value = found->get<bool>();
}

void HfConfigReader::activation(const char* key, Activation& value) {
  const json* found = find(key, nullptr);
  if (!found) return;
  if (!found->is_string()) return complain(key, "must be the name of an activation", *found);
  value = activation_from_name(found->get<std::string>());
}

void HfConfigReader::complain(const std::string& key, const std::string& rule, const json& value) {
  errors_ += cat("\n  ", where_, ": /", key, ": ", rule, "; got ", value.dump());
}

void HfConfigReader::finish() const {
  if (!errors_.empty()) throw ConfigError("the model's config cannot be used:" + errors_);
}

const json* HfConfigReader::find(const char* key, const char* alias) const {
  if (config_.contains(key)) return &config_.at(key);
  if (alias && config_.contains(alias)) return &config_.at(alias);
  return nullptr;
}

}  // namespace shardline
