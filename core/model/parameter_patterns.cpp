#include "core/model/parameter_patterns.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string>

#include "core/error.h"

namespace shardline {
namespace {

// The full name, then those of its tensors in files.
std::vector<std::string> names_of(const LayerSpec& layer, const ParamSpec& param) {
  std::vector<std::string> names = {layer.full_name(param)};
  for (const auto& source : param.sources) names.push_back(source.tensor);
  return names;
}

// The name that identifies a parameter in all its uses.
std::string owner_of(const LayerSpec& layer, const ParamSpec& param) {
  return param.tied_to.empty() ? layer.full_name(param) : param.tied_to;
}

// Whether the patterns select a parameter: by its own name, or by the names of all its tensors in files.
bool is_selected(const std::vector<std::string>& names, const std::function<bool(const std::string&)>& matches_one,
                 const std::string& place) {
  if (matches_one(names[0])) return true;
  const std::vector<std::string> tensors(names.begin() + 1, names.end());
  const auto matching = std::ranges::count_if(tensors, matches_one);
  if (matching == 0 || matching == std::ssize(tensors)) return matching > 0;
  std::string all;
  for (const auto& tensor : tensors) all += (all.empty() ? "" : ", ") + tensor;
  throw ConfigError(cat(place, ": selects ", matching, " of the ", tensors.size(), " tensors of ", names[0],
                        ", which is one parameter here; select all of them: ", all));
}

// The owners of the selected parameters.
std::set<std::string> selected(const std::vector<NamePattern>& patterns, const ModelSpec& spec,
                               const std::string& place) {
  const auto matches_one = [&](const std::string& name) {
    return std::ranges::any_of(patterns, [&](const NamePattern& pattern) { return pattern.matches(name); });
  };
  std::vector<std::string> all;
  std::set<std::string> owners;
  for (const auto& layer : spec.layers)
    for (const auto& param : layer.params) {
      const auto names = names_of(layer, param);
      all.insert(all.end(), names.begin(), names.end());
      if (is_selected(names, matches_one, place)) owners.insert(owner_of(layer, param));
    }
  for (const auto& pattern : patterns) require_match(pattern, all, place, "parameter");
  return owners;
}

}  // namespace

void exclude_from_decay(const std::vector<NamePattern>& patterns, ModelSpec& spec, const std::string& place) {
  const auto excluded = selected(patterns, spec, place);
  for (auto& layer : spec.layers)
    for (auto& param : layer.params)
      if (excluded.contains(owner_of(layer, param))) param.decays = false;
}

void freeze_others(const std::vector<NamePattern>& patterns, ModelSpec& spec, const std::string& place) {
  const auto trained = selected(patterns, spec, place);
  bool has_backward = false;
  for (auto& layer : spec.layers) {
    for (auto& param : layer.params) {
      if (!patterns.empty() && !trained.contains(owner_of(layer, param))) param.trainable = false;
      has_backward |= param.trainable;
    }
    layer.has_backward = has_backward;
  }
  if (!has_backward)
    throw ConfigError(patterns.empty()
                          ? cat(place, ": the model has no trainable parameter; use another model")
                          : cat(place, ": selects only parameters that the model never trains; select others"));
}

}  // namespace shardline
