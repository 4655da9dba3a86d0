// The order in which the grid's axes map to ascending ranks. The last axis varies fastest, so its ranks are adjacent.
#pragma once
#include <array>
#include <compare>
#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace shardline {

enum class MeshAxis { d, p, t };  // replicas, pipeline stages, tensor-parallel ranks

struct Placement {
  std::array<MeshAxis, 3> axes = {MeshAxis::d, MeshAxis::p, MeshAxis::t};

  Placement() = default;
  // One of placement_names(); throws ConfigError for any other text.
  Placement(const std::string& text);  // NOLINT(google-explicit-constructor): "DPT" is a placement
  Placement(const char* text) : Placement(std::string(text)) {}
  std::string letters() const;  // "DPT"
  auto operator<=>(const Placement&) const = default;
};

// SageMaker's names, "cluster" (DPT) and "spread" (TPD), and all permutations of the letters D, P, T.
const std::vector<std::string>& placement_names();

// SageMaker's name if there is one, otherwise the letters.
std::string to_string(const Placement& placement);
std::ostream& operator<<(std::ostream& out, const Placement& placement);
void to_json(nlohmann::json& json, const Placement& placement);
void from_json(const nlohmann::json& json, Placement& placement);

}  // namespace shardline
