#include "engine/import/container.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <tuple>

#include "core/error.h"
#include "core/files/json_reader.h"
#include "engine/import/keys/values.h"

namespace shardline {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

std::string in_case(std::string text, int (*change)(int)) {
  std::ranges::transform(text, text.begin(), [=](unsigned char c) { return change(c); });
  return text;
}

json object_in(const std::string& text, const std::string& source) {
  const JsonDocument document = parse_json(text, source);
  if (!document.problems.empty()) throw ConfigError(document.problems.front());
  if (!document.value.is_object())
    throw ConfigError(cat(source, ": must be an object; got ", json_shown(document.value)));
  return document.value;
}

json object_of_file(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return json::object();
  const JsonDocument document = read_json_file(path.string());
  if (!document.problems.empty()) throw ConfigError(document.problems.front());
  if (!document.value.is_object())
    throw ConfigError(cat(path.string(), ": must be an object; got ", json_shown(document.value)));
  return document.value;
}

const std::string* variable(const Variables& variables, const std::string& name) {
  const auto found = variables.find(name);
  return found == variables.end() || found->second.empty() ? nullptr : &found->second;
}

// "learning-rate" -> "LEARNING_RATE"
std::string in_variable(const std::string& name) {
  return in_case(plain_name(name), std::toupper);
}

// The values of the variables whose names begin with this prefix, by the rest of their names in lower case.
std::map<std::string, std::string> variables_after(const Variables& variables, const std::string& prefix) {
  std::map<std::string, std::string> found;
  for (auto at = variables.lower_bound(prefix); at != variables.end() && at->first.starts_with(prefix); ++at)
    if (at->first.size() > prefix.size()) found[in_case(at->first.substr(prefix.size()), std::tolower)] = at->second;
  return found;
}

// Sets the key with this name in variables, or adds it. A value that means the same stays as it is; toolkits write null
// as an empty text.
void overlay(json& object, const std::string& name, const std::string& text) {
  for (auto& [key, value] : object.items())
    if (in_variable(key) == in_case(name, std::toupper)) {
      if (plain_text(value) != text && !(text.empty() && is_unset(value))) value = text;
      return;
    }
  object[name] = text;
}

json hyperparameters(const fs::path& config, const Variables& variables) {
  json all = object_of_file(config / "hyperparameters.json");
  for (const char* name : {"SM_HPS", "SM_FRAMEWORK_PARAMS"})
    if (const auto* text = variable(variables, name)) all.update(object_in(*text, name));
  for (const auto& [name, text] : variables_after(variables, "SM_HP_")) overlay(all, name, text);
  return all;
}

json channels_of(const json& inputs, const fs::path& folder, const Variables& variables) {
  json channels = json::object();
  for (const auto& [name, value] : inputs.items()) channels[name] = (folder / "input/data" / name).string();
  for (const auto& [name, text] : variables_after(variables, "SM_CHANNEL_")) overlay(channels, name, text);
  return channels;
}

// "algo-10" comes after "algo-2".
std::tuple<std::string, size_t, std::string> place_of_host(const std::string& name) {
  const size_t digits = name.size() - std::min(name.find_last_not_of("0123456789") + 1, name.size());
  const std::string number = name.substr(name.size() - digits);
  return {name.substr(0, name.size() - digits), number.size(), number};
}

json resources(const fs::path& config, const Variables& variables) {
  json all = object_of_file(config / "resourceconfig.json");
  if (const auto* text = variable(variables, "SM_HOSTS")) all["hosts"] = parse_json(*text, "SM_HOSTS").value;
  if (const auto* text = variable(variables, "SM_CURRENT_HOST")) all["current_host"] = *text;
  if (all.contains("hosts") && all["hosts"].is_array()) {
    // Hosts may list them in different orders.
    auto& hosts = all["hosts"];
    std::sort(hosts.begin(), hosts.end(), [](const json& one, const json& other) {
      return place_of_host(plain_text(one)) < place_of_host(plain_text(other));
    });
  }
  return all;
}

}  // namespace

Variables environment_variables() {
  Variables variables;
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    const auto equals = text.find('=');
    if (equals == std::string::npos) continue;
    if (text.starts_with("SM_")) require_utf8(text, text.substr(0, equals));
    variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return variables;
}

std::string container_folder(const Variables& variables) {
  const auto* folder = variable(variables, "SAGEMAKER_BASE_DIR");
  return folder ? *folder : "/opt/ml";
}

bool has_container_job(const std::string& folder) {
  std::error_code ignored;
  return fs::is_directory(fs::path(folder) / "input/config", ignored);
}

ContainerJob read_container_job(const std::string& base, const Variables& variables) {
  const fs::path folder = base, config = folder / "input/config";
  const auto place = [&](const char* name, const char* other) {
    const auto* text = variable(variables, name);
    return text ? *text : (folder / other).string();
  };
  json job = {{"hyperparameters", hyperparameters(config, variables)},
              {"resourceconfig", resources(config, variables)},
              {"inputdataconfig", object_of_file(config / "inputdataconfig.json")},
              {"model_dir", place("SM_MODEL_DIR", "model")},
              {"checkpoints", (folder / "checkpoints").string()},
              {"output_data_dir", place("SM_OUTPUT_DATA_DIR", "output/data")}};
  job["channels"] = channels_of(job["inputdataconfig"], folder, variables);
  for (const char* section : {"inputdataconfig", "channels", "resourceconfig", "hyperparameters"})
    if (job[section].empty()) job.erase(section);

  ContainerJob result{{"container", "", container_keys(), job}, {}, "", job["output_data_dir"].get<std::string>()};
  const json resource = job.value("resourceconfig", json::object());
  for (const auto& host : resource.value("hosts", json::array()))
    if (host.is_string()) result.hosts.push_back(host.get<std::string>());
  result.current_host = plain_text(resource.value("current_host", json("")));
  if (result.hosts.size() > 1 && std::ranges::find(result.hosts, result.current_host) == result.hosts.end())
    throw ConfigError(cat((config / "resourceconfig.json").string(), ": /current_host: must be one of the hosts ",
                          json(result.hosts).dump(), "; got ", json(result.current_host).dump()));
  return result;
}

}  // namespace shardline
