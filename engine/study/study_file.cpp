#include "engine/study/study_file.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>

#include "core/error.h"

namespace shardline {
namespace {

using nlohmann::json;

constexpr int kMostPoints = 2000, kMostRepeats = 1000;
constexpr size_t kLongestName = 160;

struct Factor {
  const char* key;
  JsonType type;
};

const std::vector<Factor>& known_factors() {
  static const std::vector<Factor> factors = {
      {"devices", json_integer(1)},
      {"nodes", json_integer(1)},
      {"layout", json_object()},
      {"samples", json_integer(1)},
      {"batch", json_integer(1)},
      {"global_batch", json_integer(1)},
      {"learning_rate", json_number(0)},
      {"learning_rate_scaling", json_choice({{"none"}, {"sqrt"}, {"linear"}})},
      {"reference_batch", json_integer(1)},
      {"precision", json_choice({{"fp32"}, {"fp16"}, {"bf16"}})},
      {"epochs", json_number(1e-9, 1e9)},
      {"steps", json_integer(1)},
      {"warmup_share", json_number_below(0, 1)},
      {"cluster", json_text()},
  };
  return factors;
}

bool is_config_key(const std::string& key) {
  return key.find('.') != std::string::npos;
}

// Reports everything that is wrong with a combination.
void check_factors(const json& factors, const std::string& place) {
  const JsonDocument document{.value = factors, .file = place, .origins = {}, .problems = {}};
  JsonReader reader(document);
  for (const auto& [key, type] : known_factors()) reader.find(key, type);
  for (const auto& [key, value] : factors.items())
    if (is_config_key(key)) reader.peek(key);
  reader.report_unknown_keys();
  const auto contradict = [&](const char* one, const char* other) {
    if (reader.has(one) && reader.has(other))
      reader.fail(one, cat("contradicts ", other), cat("leave out one of them, in \"rules\" as well"));
  };
  contradict("batch", "global_batch");
  contradict("epochs", "steps");
  if (factors.value("learning_rate_scaling", json("none")) != "none" && !reader.has("reference_batch"))
    reader.fail("learning_rate_scaling", "needs reference_batch",
                "state the global batch for which the config's learning rate was chosen");
  if (reader.has("devices") && reader.has("nodes") && reader.clean() &&
      factors["devices"].get<int>() % factors["nodes"].get<int>() != 0)
    reader.fail("devices", cat("must be a multiple of nodes, ", factors["nodes"]), "");
  reader.throw_problems();
}

// The value of a matrix's axis as factors. An object sets several factors together.
json axis_factors(const std::string& axis, const json& value) {
  if (value.is_object() && axis != "layout" && !is_config_key(axis)) return value;
  return {{axis, value}};
}

// Every combination of the axes' values; the last axis varies fastest.
std::vector<json> combinations(const JsonDocument& document, JsonReader& root) {
  JsonReader matrix = root.child("matrix");
  std::vector<json> all = {json::object()};
  const json axes = matrix.value();
  for (const auto& [axis, ignored] : axes.items()) {
    const json* values = matrix.find(axis, json_array());
    if (!values) continue;
    if (values->empty()) matrix.fail(axis, "has no values", "");
    std::vector<json> longer;
    for (const json& one : all)
      for (const json& value : *values) {
        longer.push_back(one);
        longer.back().update(axis_factors(axis, value));
        if (longer.size() > kMostPoints)
          throw ConfigError(cat(document.file, ": /matrix: has more than ", kMostPoints, " combinations"));
      }
    all = std::move(longer);
  }
  return axes.empty() ? std::vector<json>() : all;
}

PublishedResult published_in(JsonReader& run) {
  PublishedResult result;
  JsonReader reader = run.child("published");
  for (const auto& [key, value] : {std::pair{"minutes", &result.minutes}, {"cost", &result.cost}})
    if (const json* number = reader.find(key, json_number(0, 1e12))) *value = number->get<double>();
  if (const json* number = reader.find("metric", json_number(-1e12, 1e12))) result.metric = number->get<double>();
  reader.report_unknown_keys();
  return result;
}

// A run in the list: its name, its published results, and its factors.
StudyPoint listed_point(json run, const std::string& place) {
  StudyPoint point;
  const JsonDocument document{.value = run, .file = place, .origins = {}, .problems = {}};
  JsonReader reader(document);
  if (const json* name = reader.find("name", json_text())) point.name = name->get<std::string>();
  point.published = published_in(reader);
  reader.throw_problems();
  run.erase("name");
  run.erase("published");
  point.factors = std::move(run);
  return point;
}

// A text as a part of a file's name.
std::string plain_name(std::string text) {
  const auto is_plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
  };
  for (char& c : text)
    if (!is_plain(c) && std::string_view("=,.+-_").find(c) == std::string_view::npos) c = '-';
  return text;
}

void name_points(StudyFile& study) {
  const auto varied = varied_factors(study.points);
  std::set<std::string> names;
  for (auto& point : study.points) {
    if (point.name.empty()) {
      for (const auto& key : varied)
        if (const auto text = factor_text(point.factors, key); !text.empty())
          point.name += cat(point.name.empty() ? "" : ",", key, "=", text);
      if (point.name.empty()) point.name = "run";
    }
    point.name = plain_name(point.name).substr(0, kLongestName);
    if (point.name.starts_with('.') || !names.insert(point.name).second)
      throw ConfigError(cat(study.file, ": two runs are called \"", point.name,
                            "\", or the name begins with a dot; rename them, or use \"repeats\" if they "
                            "have the same settings"));
  }
}

std::string text_at(JsonReader& reader, const std::string& key) {
  const json* value = reader.find(key, json_text());
  return value ? value->get<std::string>() : "";
}

int integer_at(JsonReader& reader, const std::string& key, double least, double most, int fallback) {
  const json* value = reader.find(key, json_integer(least, most));
  return value ? value->get<int>() : fallback;
}

void read_config_source(JsonReader& root, StudyFile& study) {
  const json* config = root.peek("config");
  if (config && config->is_object())
    study.inline_config = *config;
  else if (config && config->is_string() && !config->get<std::string>().empty())
    study.config = *config;
  else
    root.fail("config", "must be a config file or an object with its contents", "");
}

void read_repeats(JsonReader& root, StudyFile& study) {
  study.repeats = integer_at(root, "repeats", 1, kMostRepeats, 1);
  const json* seeds = root.find("seeds", json_array());
  if (!seeds) return;
  if (root.has("repeats")) root.fail("seeds", "contradicts repeats", "leave out one of them");
  std::set<int64_t> different;
  for (const json& seed : *seeds) {
    if (json_integer(0, 9007199254740991).mistake(seed))
      return root.fail("seeds", "must be a list of integers >= 0", "");
    if (!different.insert(seed.get<int64_t>()).second) return root.fail("seeds", "has a seed twice", "");
    study.seeds.push_back(seed);
  }
  if (study.seeds.empty() || study.seeds.size() > kMostRepeats)
    return root.fail("seeds", cat("must have 1 to ", kMostRepeats, " values"), "");
  study.repeats = study.seeds.size();
}

}  // namespace

StudyFile study_from_json(const JsonDocument& document) {
  StudyFile study{.file = document.file};
  JsonReader root(document);
  read_config_source(root, study);
  read_repeats(root, study);
  study.cluster = text_at(root, "cluster");
  study.prices = text_at(root, "prices");
  study.metric = text_at(root, "metric");
  study.source = text_at(root, "source");
  study.at_once = integer_at(root, "at_once", 1, kMostPoints, 0);
  study.timeout_seconds = integer_at(root, "timeout_seconds", 1, 100'000'000, study.timeout_seconds);
  study.output_dir = text_at(root, "output_dir");
  if (study.output_dir.empty()) root.fail("output_dir", "is required", "set it to the directory of the study");
  if (!study.metric.empty() && !study.metric.starts_with("eval_"))
    root.fail("metric", "must name a metric of evaluations in metrics.jsonl, which begins with eval_",
              cat("did you mean \"eval_", study.metric, "\"?"));
  const json* rules = root.find("rules", json_object());
  for (json& combination : combinations(document, root))
    study.points.push_back({.name = "", .factors = std::move(combination), .published = {}});
  const json* runs = root.find("runs", json_array());
  for (size_t i = 0; runs && i < runs->size(); ++i) {
    const std::string place = cat(document.file, ": /runs/", i);
    if (!(*runs)[i].is_object()) throw ConfigError(cat(place, ": must be an object"));
    study.points.push_back(listed_point((*runs)[i], place));
  }
  root.report_unknown_keys();
  root.throw_problems();
  if (study.points.empty() || study.points.size() > kMostPoints)
    throw ConfigError(cat(document.file, ": needs 1 to ", kMostPoints, " runs; give \"matrix\", \"runs\" or both"));
  for (auto& point : study.points) {
    json all = rules ? *rules : json::object();
    all.update(point.factors);
    point.factors = std::move(all);
  }
  name_points(study);
  for (const auto& point : study.points) check_factors(point.factors, cat(document.file, ", run ", point.name));
  return study;
}

StudyFile read_study(const std::string& path) {
  return study_from_json(read_json_file(path));
}

std::vector<std::string> varied_factors(const std::vector<StudyPoint>& points) {
  std::vector<std::string> keys;
  for (const auto& factor : known_factors()) keys.push_back(factor.key);
  for (const auto& point : points)
    for (const auto& [key, value] : point.factors.items())
      if (std::ranges::find(keys, key) == keys.end()) keys.push_back(key);
  std::erase_if(keys, [&](const std::string& key) {
    const auto value_in = [&](const StudyPoint& point) { return point.factors.value(key, json()); };
    return std::ranges::all_of(points,
                               [&](const StudyPoint& point) { return value_in(point) == value_in(points.front()); });
  });
  return keys;
}

std::string factor_text(const json& factors, const std::string& key) {
  const auto found = factors.find(key);
  if (found == factors.end()) return "";
  if (key == "cluster") return found->is_string() ? std::filesystem::path(found->get<std::string>()).stem() : "";
  if (key != "layout" || !found->is_object()) return found->is_string() ? found->get<std::string>() : found->dump();
  std::string text;
  for (const auto& [option, value] : found->items()) {
    const std::string name = option == "pipeline_parallel_degree" ? "P"
                             : option == "tensor_parallel_degree" ? "T"
                                                                  : option;
    text += cat(text.empty() ? "" : "+", name, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return text;
}

}  // namespace shardline
