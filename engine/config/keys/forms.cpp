#include "engine/config/keys/forms.h"

#include <algorithm>
#include <functional>

#include "core/error.h"
#include "core/files/json_text.h"
#include "engine/config/keys/registry.h"

namespace shardline {
namespace {

using nlohmann::json;
using Pointer = json::json_pointer;

void require_enabled(JsonReader& wrapper, const std::string& advice) {
  const json* enabled = wrapper.find("enabled", json_boolean());
  if (enabled && *enabled == false) wrapper.fail("enabled", "must be true", advice);
}

// {"enabled": true, "parameters": {...}} -> the parameters; otherwise the options themselves.
JsonReader open_envelope(JsonReader options) {
  if (options.has("enabled")) require_enabled(options, "to run without model parallelism, leave the parameters out");
  if (!options.has("parameters")) return options;
  JsonReader parameters = options.child("parameters");
  const auto& sections = config_sections();
  const auto smp =
      std::find_if(sections.begin(), sections.end(), [](const auto& s) { return s.name == "smp_options"; });
  for (const auto& key : smp->keys)
    for (const auto& spelling : key.spellings())
      if (options.has(spelling)) options.fail(spelling, "is outside of \"parameters\"", "move it into parameters");
  options.report_unknown_keys();
  return parameters;
}

std::optional<JsonReader> open_data_parallel(JsonReader& smdistributed) {
  if (!smdistributed.has("dataparallel")) return std::nullopt;
  JsonReader data_parallel = smdistributed.child("dataparallel");
  data_parallel.find("enabled", json_boolean());
  data_parallel.find("custom_mpi_options", json_text());
  data_parallel.report_unknown_keys();
  return data_parallel;
}

void refuse_both(JsonReader& root, const std::string& section) {
  if (root.has("distribution") && root.has(section))
    root.fail(section, "distribution and " + section + " set the same options", "keep one of them");
}

// The pointer to the object with a section's keys in this document.
std::string section_pointer(const json& document, const std::string& section) {
  const auto holds = [&](const std::string& pointer) { return document.contains(Pointer(pointer)); };
  if (!holds("/" + section) && holds("/distribution")) {
    if (section == "smp_options") return "/distribution/smdistributed/modelparallel/parameters";
    if (section == "mpi_options") return "/distribution/mpi";
  }
  if (section == "smp_options" && holds("/smp_options/parameters")) return "/smp_options/parameters";
  return "/" + section;
}

// "training.max_steps" or "/training/max_steps" -> {"training", "max_steps"}
std::vector<std::string> path_steps(const std::string& path) {
  const char separator = path.front() == '/' ? '/' : '.';
  std::vector<std::string> steps(1);
  for (const char c : path.substr(separator == '/' ? 1 : 0)) {
    if (c == separator) {
      steps.emplace_back();
    } else {
      steps.back() += c;
    }
  }
  return steps;
}

std::string pointer_of(const json& document, std::vector<std::string> steps) {
  std::string pointer;
  if (steps.size() > 2 && steps[0] == "smp_options" && steps[1] == "parameters") steps.erase(steps.begin() + 1);
  if (steps.size() > 1 && (steps[0] == "smp_options" || steps[0] == "mpi_options")) {
    pointer = section_pointer(document, steps[0]);
    steps.erase(steps.begin());
  }
  for (const auto& step : steps) pointer += "/" + step;
  return pointer;
}

// Visits the keys with the place of each of their spellings.
void for_each_spelling(const json& document,
                       const std::function<void(const Section&, const Key&, const std::string& pointer)>& visit) {
  for (const auto& section : config_sections()) {
    if (section.name.empty()) continue;  // keys of the top level have no other spelling
    const std::string place = section_pointer(document, section.name);
    for (const auto& key : section.keys)
      for (const auto& spelling : key.spellings()) visit(section, key, place + "/" + spelling);
  }
}

bool is_from_command_line(const JsonDocument& document, const std::string& pointer) {
  return std::any_of(document.origins.begin(), document.origins.end(), [&](const auto& origin) {
    return pointer == origin.first || pointer.starts_with(origin.first + "/");
  });
}

// Whether `value` replaces what another key sets. A flag that is turned off removes only what it means when it is on:
// adafactor false removes optim "adafactor".
bool replaces(const Key& key, const json& value, const Key& other_key, const json& other) {
  if (key.writes.empty() || !key.meaning_of(value).is_null()) return true;
  return value == false && other_key.meaning_of(other) == key.meaning_of(true);
}

// Removes the file's values of the setting in any spelling. The value of an earlier --set in another spelling is kept,
// and then refused as a contradiction, unless it is the "auto" for which this number was chosen.
void erase_other_spellings(JsonDocument& document, const std::string& pointer, const json& value) {
  std::string setting;
  const Key* replacing = nullptr;
  for_each_spelling(document.value, [&](const Section& section, const Key& key, const std::string& place) {
    if (place == pointer) setting = setting_of(section, key), replacing = &key;
  });
  if (!replacing) return;
  for_each_spelling(document.value, [&](const Section& section, const Key& key, const std::string& place) {
    if (setting_of(section, key) != setting || place == pointer || !document.value.contains(Pointer(place))) return;
    const json& other = document.value[Pointer(place)];
    if (is_from_command_line(document, place) ? other != "auto" : !replaces(*replacing, value, key, other)) return;
    document.origins.erase(place);
    document.value[Pointer(place).parent_pointer()].erase(Pointer(place).back());
  });
}

// The place itself, or the outermost object that must be created to hold it.
std::string first_new_place(const json& document, Pointer place) {
  while (!place.parent_pointer().empty() && !document.contains(place.parent_pointer())) place.pop_back();
  return place.to_string();
}

bool is_utf8(const std::string& text) try {
  (void)json(text).dump();
  return true;
} catch (const json::type_error&) {
  return false;
}

// Whether the path names an item of a list beyond the one after its last: nlohmann would fill the gap with nulls.
bool leaves_gap(const json& document, Pointer place) {
  for (; !place.empty(); place.pop_back()) {
    const std::string step = place.back();
    if (step.empty() || step.find_first_not_of("0123456789") != std::string::npos) continue;
    const Pointer parent = place.parent_pointer();
    const json list = document.contains(parent) ? document[parent] : json();
    if (list.is_object()) continue;
    if (step.size() > 9 || std::stoul(step) > (list.is_array() ? list.size() : 0)) return true;
  }
  return false;
}

json override_value(const std::string& text) {
  const json value = json_in_text(text);
  return value.is_discarded() ? json(text) : value;
}

}  // namespace

WrappedSections unwrap_sections(JsonReader& root) {
  refuse_both(root, "smp_options");
  refuse_both(root, "mpi_options");
  if (!root.has("distribution")) return {open_envelope(root.child("smp_options")), root.child("mpi_options")};

  JsonReader distribution = root.child("distribution");
  JsonReader smdistributed = distribution.child("smdistributed");
  WrappedSections sections{open_envelope(smdistributed.child("modelparallel")), distribution.child("mpi"),
                           open_data_parallel(smdistributed)};
  smdistributed.report_unknown_keys();
  distribution.report_unknown_keys();
  root.peek("smp_options");
  root.peek("mpi_options");
  return sections;
}

void apply_data_parallelism(JsonReader& data_parallel, Config& config) {
  const json* enabled = data_parallel.peek("enabled");
  if (!enabled || *enabled != true) return;  // as in SageMaker, where the default is false
  if (config.smp.ddp == false) data_parallel.fail("enabled", "contradicts ddp false", "keep one of them");
  if (config.mpi.processes_per_host == 0)
    data_parallel.fail("enabled", "needs the number of ranks on each host",
                       "add \"mpi\": {\"processes_per_host\": 8} next to \"smdistributed\"");
  config.smp.ddp = true;
  const json* options = data_parallel.peek("custom_mpi_options");
  if (!options || !options->is_string()) return;
  if (!config.mpi.custom_mpi_options.empty() && config.mpi.custom_mpi_options != *options)
    data_parallel.fail("custom_mpi_options", cat("contradicts that of mpi, \"", config.mpi.custom_mpi_options, '"'),
                       "keep one of them");
  config.mpi.custom_mpi_options = options->get<std::string>();
}

void check_data_parallelism(JsonReader& data_parallel, const Config& config, int replicas) {
  const json* enabled = data_parallel.peek("enabled");
  if (enabled && *enabled == false && !config.smp.ddp && replicas > 1)
    data_parallel.fail("enabled", cat("must be true with ", replicas, " replicas (D = world size / (P x T) > 1)"),
                       "leave it out, or start P x T processes");
}

void apply_override(JsonDocument& document, const std::string& assignment) {
  const auto complain = [&](const std::string& what) {
    document.problems.push_back(cat("--set ", assignment, ": ", what));
  };
  if (!is_utf8(assignment)) return complain("must be UTF-8, as all JSON is");
  const auto equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0) return complain("must be path=value, as in training.max_steps=10");
  const std::vector<std::string> steps = path_steps(assignment.substr(0, equals));
  if (std::find(steps.begin(), steps.end(), "") != steps.end()) return complain("the path has an empty part");

  const std::string pointer = pointer_of(document.value, steps);
  try {
    const Pointer place(pointer);
    if (leaves_gap(document.value, place)) return complain("the list has fewer items; name one of them, or the next");
    document.origins[first_new_place(document.value, place)] = "--set " + assignment;
    json& parent = document.value[place.parent_pointer()];
    if (!parent.is_object() && !parent.is_null() && !parent.is_array())
      return complain(cat(place.parent_pointer().to_string(), " is not an object, but ", parent.dump()));
    const json value = override_value(assignment.substr(equals + 1));
    erase_other_spellings(document, pointer, value);
    document.value[place] = value;
  } catch (const json::exception& error) {
    return complain(cat("no such place in ", document.file, ": ", error.what()));
  }
}

}  // namespace shardline
