#include "core/model/placement.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>
#include <utility>

#include "core/error.h"

namespace shardline {
namespace {

constexpr std::pair<char, MeshAxis> kLetters[] = {{'D', MeshAxis::d}, {'P', MeshAxis::p}, {'T', MeshAxis::t}};

constexpr std::pair<const char*, const char*> kNamed[] = {{"cluster", "DPT"}, {"spread", "TPD"}};

}  // namespace

const std::vector<std::string>& placement_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& [name, letters] : kNamed) all.push_back(name);
    std::string order;
    for (const auto& [letter, axis] : kLetters) order += letter;
    do all.push_back(order);
    while (std::next_permutation(order.begin(), order.end()));
    return all;
  }();
  return names;
}

Placement::Placement(const std::string& text) {
  if (std::ranges::find(placement_names(), text) == placement_names().end())
    throw ConfigError(cat("placement_strategy must be cluster, spread or a permutation of the letters D, P, T; got \"",
                          text, "\". The default, cluster, is DPT."));
  const auto named = std::ranges::find(kNamed, text, &std::pair<const char*, const char*>::first);
  const std::string order = named == std::end(kNamed) ? text : named->second;
  for (size_t i = 0; i < axes.size(); ++i)
    axes[i] = std::ranges::find(kLetters, order[i], &std::pair<char, MeshAxis>::first)->second;
}

std::string Placement::letters() const {
  std::string text;
  for (const MeshAxis axis : axes) text += std::ranges::find(kLetters, axis, &std::pair<char, MeshAxis>::second)->first;
  return text;
}

std::string to_string(const Placement& placement) {
  const std::string text = placement.letters();
  const auto named = std::ranges::find(kNamed, text, &std::pair<const char*, const char*>::second);
  return named == std::end(kNamed) ? text : named->first;
}

std::ostream& operator<<(std::ostream& out, const Placement& placement) {
  return out << to_string(placement);
}

void to_json(nlohmann::json& json, const Placement& placement) {
  json = to_string(placement);
}

void from_json(const nlohmann::json& json, Placement& placement) {
  placement = json.get<std::string>();
}

}  // namespace shardline
