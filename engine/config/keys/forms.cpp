#include "engine/config/keys/forms.h"

#include <algorithm>

#include "core/error.h"
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
  options.report_unknown_keys();
  return parameters;
}

// SageMaker takes it as disabled where it does not say.
std::optional<JsonReader> enabled_data_parallel(JsonReader& smdistributed) {
  if (!smdistributed.has("dataparallel")) return std::nullopt;
  JsonReader data_parallel = smdistributed.child("dataparallel");
  const json* enabled = data_parallel.find("enabled", json_boolean());
  data_parallel.find("custom_mpi_options", json_text());
  data_parallel.report_unknown_keys();
  return enabled && *enabled == true ? std::optional(data_parallel) : std::nullopt;
}

void refuse_both(JsonReader& root, const std::string& section) {
  if (root.has("distribution") && root.has(section))
    root.fail(section, "distribution and " + section + " set the same options", "keep one of them");
}

// Where the keys of a section are in this document.
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
  if (steps.size() > 1 && (steps[0] == "smp_options" || steps[0] == "mpi_options")) {
    pointer = section_pointer(document, steps[0]);
    steps.erase(steps.begin());
  }
  for (const auto& step : steps) pointer += "/" + step;
  return pointer;
}

std::vector<std::string> spellings_of(const Key& key) {
  std::vector<std::string> spellings = key.aliases;
  spellings.push_back(key.name);
  return spellings;
}

// The value on the command line replaces the one in the file, however the file spells the key: by another name of it,
// or by a shorthand.
void erase_other_spellings(json& document, const std::string& section, const std::string& name) {
  std::string full_name;
  for (const auto& table : config_sections())
    for (const auto& key : table.keys)
      if (const auto names = spellings_of(key);
          table.name == section && std::find(names.begin(), names.end(), name) != names.end())
        full_name = section + "." + key.name;
  for (const auto& table : config_sections()) {
    const Pointer place(section_pointer(document, table.name));
    if (!document.contains(place) || !document[place].is_object()) continue;
    for (const auto& key : table.keys)
      if (full_name == table.name + "." + key.name || full_name == key.writes)
        for (const auto& spelling : spellings_of(key)) document[place].erase(spelling);
  }
}

json override_value(const std::string& text) {
  const json value = json::parse(text, nullptr, false);
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
                           enabled_data_parallel(smdistributed)};
  smdistributed.report_unknown_keys();
  distribution.report_unknown_keys();
  root.peek("smp_options");
  root.peek("mpi_options");
  return sections;
}

void enable_data_parallelism(JsonReader& data_parallel, Config& config) {
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

void apply_override(JsonDocument& document, const std::string& assignment) {
  const auto complain = [&](const std::string& what) {
    document.problems.push_back(cat("--set ", assignment, ": ", what));
  };
  const auto equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0) return complain("must be path=value, as in training.max_steps=10");
  const std::vector<std::string> steps = path_steps(assignment.substr(0, equals));
  if (std::find(steps.begin(), steps.end(), "") != steps.end()) return complain("the path has an empty step");

  const std::string pointer = pointer_of(document.value, steps);
  try {
    const Pointer place(pointer);
    json& parent = document.value[place.parent_pointer()];
    if (!parent.is_object() && !parent.is_null() && !parent.is_array())
      return complain(cat(place.parent_pointer().to_string(), " is not an object, but ", parent.dump()));
    if (steps.size() == 2) erase_other_spellings(document.value, steps[0], steps[1]);
    document.value[place] = override_value(assignment.substr(equals + 1));
  } catch (const json::exception& error) {
    return complain(cat("no such place in ", document.file, ": ", error.what()));
  }
  document.origins[pointer] = "--set " + assignment;
}

}  // namespace shardline
