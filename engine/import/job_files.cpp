#include "engine/import/job_files.h"

#include <algorithm>
#include <cctype>
#include <regex>

#include "core/error.h"
#include "core/files/json_reader.h"
#include "engine/config/keys/registry.h"
#include "engine/config/rules/checks.h"
#include "engine/config/rules/shell_words.h"
#include "engine/import/keys/values.h"
#include "engine/import/yaml_text.h"

namespace shardline {
namespace {

using nlohmann::json;

struct KindOfFile {
  const Vocabulary& keys;
  const char* place;  // before the names of its keys
};

const std::vector<KindOfFile>& kinds() {
  static const std::vector<KindOfFile> all = {{training_job_keys(), ""},
                                              {estimator_keys(), ""},
                                              {deepspeed_keys(), "deepspeed"},
                                              {accelerate_keys(), "accelerate"},
                                              {hyperparameter_keys(), "hyperparameters"}};
  return all;
}

// Counts the keys that the vocabulary knows, twice if the value has the expected form (an object with keys, or not).
size_t known_keys(const Vocabulary& vocabulary, const json& object) {
  size_t count = 0;
  for (const auto& [name, value] : object.items()) {
    const ForeignKey* key = vocabulary.find({name});
    const bool has_below = vocabulary.has_below({name});
    if (!key && !has_below) continue;
    const bool has_form = value.is_object() ? has_below || (key && key->inner) : key != nullptr;
    count += has_form ? 2 : 1;
  }
  return count;
}

bool is_config_of_ours(const json& object) {
  return object.contains("model") && object.contains("data") && object["data"].is_object() &&
         !object.contains("hyperparameters");
}

// Chooses the vocabulary that knows the most keys.
JobFile recognised(const json& object, const std::string& file) {
  if (!object.is_object() || object.empty())
    throw ConfigError(cat(file, ": must have keys of a job, but is ", json_shown(object), "; name another file"));
  if (is_config_of_ours(object)) throw ConfigError(cat(file, ": is already a config of shardline; use it as it is"));
  const KindOfFile *best = nullptr, *rival = nullptr;
  size_t most = 0;
  for (const auto& kind : kinds()) {
    const size_t count = known_keys(kind.keys, object);
    if (count < most || count == 0) continue;
    rival = count == most ? best : nullptr;
    best = &kind;
    most = count;
  }
  if (rival)
    throw ConfigError(cat(file, ": its keys may be of either kind: ", rival->keys.title, ", ", best->keys.title,
                          "; put hyperparameters into {\"hyperparameters\": {...}}, or name DeepSpeed's file as an "
                          "argument: --deepspeed FILE"));
  if (!best)
    throw ConfigError(cat(file,
                          ": has no key of a training job of SageMaker, an estimator, DeepSpeed, accelerate or a "
                          "script of Hugging Face, but, for example, ",
                          json(object.begin().key()).dump(), "; name another file"));
  return {best->keys.title, best->place, best->keys, object};
}

bool begins_with_brace(const std::string& text) {
  const auto first = std::ranges::find_if_not(text, [](unsigned char c) { return std::isspace(c); });
  return first != text.end() && (*first == '{' || *first == '[');
}

// Words of a command line, which may continue on the next line and contain comments.
std::vector<std::string> words_of_command(const std::string& text, const std::string& file) {
  std::string joined, line;
  std::istringstream lines(text);
  while (std::getline(lines, line)) {
    const auto first = line.find_first_not_of(" \t\r");
    if (first != std::string::npos && line[first] == '#') continue;
    const auto last = line.find_last_not_of(" \t\r");
    const bool continues = last != std::string::npos && line[last] == '\\';
    joined += (continues ? line.substr(0, last) : line) + ' ';
  }
  std::vector<std::string> words;
  report_mistakes([&] { words = shell_words(joined); },
                  [&](const std::string& rule, const std::string& advice) {
                    throw ConfigError(cat(file, ": the command ", rule, "; ", advice));
                  });
  return words;
}

bool is_key(const std::string& word) {
  const bool is_number = word.size() > 1 && (std::isdigit(static_cast<unsigned char>(word[1])) || word[1] == '.');
  return word.size() > 1 && word[0] == '-' && !is_number;
}

bool is_command(const std::vector<std::string>& words) {
  return std::ranges::any_of(words, [](const std::string& word) { return word.starts_with("--") && word.size() > 2; });
}

bool looks_like_yaml(const std::string& text) {
  static const std::regex key(R"(^[A-Za-z_][\w-]*:(\s|$))");
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    if (line.size() > 1000) return false;
    if (line.empty() || line[0] == '#' || line.starts_with("---")) continue;
    return std::regex_search(line, key);
  }
  return false;
}

// "python", "-m", "torch.distributed.run", "--nproc_per_node=8", "run_clm.py", "--do_train"
std::vector<JobFile> files_of_command(const std::vector<std::string>& words, const std::string& file) {
  const auto script = std::ranges::find_if(words, [](const auto& word) { return word.ends_with(".py"); });
  const auto first_key = std::ranges::find_if(words, is_key);
  if (script == words.end()) {
    if (first_key != words.begin())
      throw ConfigError(cat(file, ": the command has no script (a word that ends with .py); give the arguments alone"));
    return {{"script arguments", "arguments", hyperparameter_keys(), object_of_arguments(words, file)}};
  }
  json launcher = json::object();
  std::vector<std::string> options(first_key < script ? first_key : script, script), names(words.begin(), script);
  names.resize(names.size() - options.size());
  // The launcher's options begin with the first key: "accelerate launch --config_file a.yaml run_clm.py".
  if (!options.empty()) launcher = object_of_arguments(options, file);
  if (!names.empty()) launcher["words"] = names;
  launcher["script"] = *script;
  return {
      {"launcher", "launcher", launcher_keys(), launcher},
      {"script arguments", "arguments", hyperparameter_keys(), object_of_arguments({script + 1, words.end()}, file)}};
}

json parsed(const std::string& text, const std::string& file) {
  JsonDocument document = parse_json(text, file);
  if (!document.problems.empty()) throw ConfigError(document.problems.front());
  return document.value;
}

bool is_list_of_words(const json& value) {
  return value.is_array() && !value.empty() &&
         std::ranges::all_of(value, [](const json& word) { return word.is_string() || word.is_number(); });
}

}  // namespace

json object_of_arguments(const std::vector<std::string>& words, const std::string& file) {
  json object = json::object();
  std::string key;
  const auto add = [&](const json& value) {
    json& place = object[key];
    if (place == true)
      place = value;
    else if (place.is_array())
      place.push_back(value);
    else
      place = json::array({place, value});
  };
  for (const auto& word : words) {
    if (!is_key(word)) {
      if (key.empty())
        throw ConfigError(cat(file, ": ", json(word).dump(), " has no --key before it; remove it, or name its key"));
      add(word);
      continue;
    }
    const auto equals = word.find('=');
    key = plain_name(word.substr(0, equals));
    if (key.empty()) throw ConfigError(cat(file, ": ", json(word).dump(), " contains no name of a key; remove it"));
    if (object.contains(key)) throw ConfigError(cat(file, ": --", key, " is given twice; keep one of them"));
    object[key] = equals == std::string::npos ? json(true) : json(word.substr(equals + 1));
  }
  return object;
}

std::vector<JobFile> read_job(const std::string& text, const std::string& file) {
  require_utf8(text, file);
  if (begins_with_brace(text)) {
    const json value = parsed(text, file);
    if (!is_list_of_words(value)) return {recognised(value, file)};
    std::vector<std::string> words;
    for (const auto& word : value) words.push_back(word.is_string() ? word.get<std::string>() : word.dump());
    return files_of_command(words, file);
  }
  if (looks_like_yaml(text)) return {recognised(json_of_yaml(text, file), file)};
  const auto words = words_of_command(text, file);
  if (is_command(words)) return files_of_command(words, file);
  throw ConfigError(cat(file, ": is neither JSON nor YAML nor a command line with --key value; name another file"));
}

json read_object(const std::string& text, const std::string& file, const Vocabulary& keys) {
  const json value = begins_with_brace(text) ? parsed(text, file) : json_of_yaml(text, file);
  if (!value.is_object())
    throw ConfigError(cat(file, ": must be an object with the keys of ", keys.title, ", but is ", json_shown(value)));
  return value;
}

}  // namespace shardline
