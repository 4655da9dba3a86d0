#include "engine/study/run_record.h"

#include <array>
#include <filesystem>
#include <sstream>

#include "core/error.h"
#include "core/files/disk_file.h"
#include "core/files/json_data.h"
#include "core/files/regular_file.h"

namespace shardline {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::array kKinds = {RunKind::measured, RunKind::planned, RunKind::failed};
constexpr double kMostCount = 9007199254740991;

template <class Value>
void set_if(ordered_json& object, const char* key, const std::optional<Value>& value) {
  if (value) object[key] = *value;
}

std::string word(const JsonValue& line, const char* key) {
  return line.at(key).text();
}

double amount(const JsonValue& line, const char* key) {
  return line.at(key).require(json_number(0)).get<double>();
}

int64_t whole(const JsonValue& line, const char* key, double least) {
  return line.at(key).require(json_integer(least, kMostCount)).get<int64_t>();
}

std::optional<double> given_number(const JsonValue& line, const char* key) {
  if (!line.has(key)) return {};
  return line.at(key).require(json_number(-1e300, 1e300)).get<double>();
}

std::optional<int64_t> given_whole(const JsonValue& line, const char* key) {
  return line.has(key) ? std::optional(whole(line, key, 0)) : std::nullopt;
}

}  // namespace

const char* to_string(RunKind kind) {
  return kind == RunKind::measured ? "measured" : kind == RunKind::planned ? "planned" : "failed";
}

ordered_json to_json(const RunRecord& record) {
  ordered_json object = {{"run", record.name},
                         {"group", record.group},
                         {"kind", to_string(record.kind)},
                         {"machine", record.machine},
                         {"devices", record.devices},
                         {"nodes", record.nodes},
                         {"layout", record.layout},
                         {"global_batch", record.global_batch},
                         {"batch_per_device", record.batch_per_device},
                         {"learning_rate", record.learning_rate}};
  set_if(object, "samples", record.samples);
  set_if(object, "seed", record.seed);
  object["steps"] = record.steps;
  object["nominal_steps"] = record.nominal_steps;
  object["step_seconds"] = record.step_seconds;
  object["job_seconds"] = record.job_seconds;
  object["samples_per_second"] = record.samples_per_second;
  set_if(object, "cost", record.cost);
  object["metrics"] = ordered_json::object();
  for (const auto& [name, value] : record.metrics) object["metrics"][name] = value;
  set_if(object, "parameters", record.parameters);
  if (record.published != PublishedResult()) {
    ordered_json published;
    set_if(published, "minutes", record.published.minutes);
    set_if(published, "cost", record.published.cost);
    set_if(published, "metric", record.published.metric);
    object["published"] = published;
  }
  object["factors"] = record.factors;
  if (!record.error.empty()) object["error"] = record.error;
  return object;
}

RunRecord record_from_json(const json& object, const std::string& where) {
  const JsonValue line(object, where);
  RunRecord record{.name = word(line, "run"), .group = word(line, "group")};
  const std::string kind = word(line, "kind");
  for (const RunKind one : kKinds)
    if (kind == to_string(one)) record.kind = one;
  if (kind != to_string(record.kind)) line.at("kind").fail("must be measured, planned or failed");
  record.machine = word(line, "machine");
  record.devices = line.at("devices").integer(1);
  record.nodes = line.at("nodes").integer(1);
  record.layout = word(line, "layout");
  record.global_batch = whole(line, "global_batch", 1);
  record.batch_per_device = amount(line, "batch_per_device");
  record.learning_rate = amount(line, "learning_rate");
  record.samples = given_whole(line, "samples");
  record.seed = given_whole(line, "seed");
  record.steps = whole(line, "steps", 0);
  record.nominal_steps = amount(line, "nominal_steps");
  record.step_seconds = amount(line, "step_seconds");
  record.job_seconds = amount(line, "job_seconds");
  record.samples_per_second = amount(line, "samples_per_second");
  record.cost = given_number(line, "cost");
  for (const auto& [name, value] : line.at("metrics").members())
    record.metrics[name] = value.require(json_number(-1e300, 1e300)).get<double>();
  record.parameters = given_whole(line, "parameters");
  if (line.has("published")) {
    const JsonValue published = line.at("published");
    published.require(json_object());
    record.published = {given_number(published, "minutes"), given_number(published, "cost"),
                        given_number(published, "metric")};
  }
  record.factors = line.at("factors").require(json_object());
  if (line.has("error")) record.error = word(line, "error");
  return record;
}

std::vector<RunRecord> read_records(const std::string& path) {
  if (!std::filesystem::exists(path)) return {};
  std::vector<RunRecord> records;
  std::istringstream lines(read_regular_file(path));
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string where = path + ":" + std::to_string(++number);
    try {
      records.push_back(record_from_json(parse_data_json(line, where), where));
    } catch (const DataError& error) {
      throw DataError(cat(error.what(), "; remove this line to make the study repeat its run"));
    }
  }
  return records;
}

void write_records(const std::string& path, const std::vector<RunRecord>& records) {
  std::string text;
  for (const auto& record : records) text += to_json(record).dump() + "\n";
  write_file(path, text);
}

}  // namespace shardline
