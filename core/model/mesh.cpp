#include "core/model/mesh.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/enum_array.h"
#include "core/error.h"

namespace shardline {
namespace {

bool same_group(Group group, const Coordinates& a, const Coordinates& b) {
  switch (group) {
    case Group::pp:
      return a.d == b.d && a.t == b.t;
    case Group::tp:
      return a.d == b.d && a.p == b.p;
    case Group::rdp:
      return a.p == b.p && a.t == b.t;
    case Group::dp:
      return a.p == b.p;
    case Group::mp:
      return a.d == b.d;
    case Group::world:
      return true;
  }
  return false;
}

}  // namespace

const char* to_string(Group group) {
  static constexpr EnumArray<Group, const char*, 6> names = {"pp", "tp", "rdp", "dp", "mp", "world"};
  return names[group];
}

Mesh::Mesh(const Placement& placement, int d, int p, int t) : placement_(placement), d_(d), p_(p), t_(t) {
  if (d < 1 || p < 1 || t < 1)
    throw ConfigError(cat("every parallel degree must be at least 1; got D=", d, ", P=", p, ", T=", t));
}

Coordinates Mesh::at(int rank) const {
  SL_ASSERT(rank >= 0 && rank < size(), "rank ", rank, " of ", size());
  Coordinates place;
  for (auto axis = placement_.axes.rbegin(); axis != placement_.axes.rend(); ++axis) {
    const int degree = *axis == MeshAxis::d ? d_ : *axis == MeshAxis::p ? p_ : t_;
    (*axis == MeshAxis::d ? place.d : *axis == MeshAxis::p ? place.p : place.t) = rank % degree;
    rank /= degree;
  }
  return place;
}

int Mesh::rank(Coordinates place) const {
  SL_ASSERT(place.d >= 0 && place.d < d_ && place.p >= 0 && place.p < p_ && place.t >= 0 && place.t < t_);
  int rank = 0;
  for (const MeshAxis axis : placement_.axes)
    rank = axis == MeshAxis::d ? rank * d_ + place.d : axis == MeshAxis::p ? rank * p_ + place.p : rank * t_ + place.t;
  return rank;
}

std::vector<int> Mesh::members(Group group, int rank) const {
  const Coordinates mine = at(rank);
  std::vector<int> ranks;
  for (int other = 0; other < size(); ++other)
    if (same_group(group, mine, at(other))) ranks.push_back(other);
  return ranks;
}

int Mesh::copies(int degree) const {
  SL_ASSERT(degree >= 1 && d_ % degree == 0, "a sharding degree of ", degree, " for ", d_, " replicas");
  return d_ / degree;
}

SharePlace Mesh::shared(int d, int degree) const {
  SL_ASSERT(d >= 0 && d < copies(degree) * degree, "replica ", d, " of ", d_);
  return {d / degree, d % degree};
}

int Mesh::replica(SharePlace place, int degree) const {
  SL_ASSERT(place.copy < copies(degree) && place.part < degree);
  return place.copy * degree + place.part;
}

int Mesh::part_over_t(Coordinates place, int degree) const {
  const int part = shared(place.d, degree).part;
  const auto& axes = placement_.axes;
  const bool t_varies_faster = std::ranges::find(axes, MeshAxis::d) < std::ranges::find(axes, MeshAxis::t);
  return t_varies_faster ? part * t_ + place.t : place.t * degree + part;
}

void to_json(nlohmann::json& json, const Mesh& mesh) {
  json = {{"placement", mesh.placement().letters()},
          {"d", mesh.d()},
          {"p", mesh.p()},
          {"t", mesh.t()},
          {"size", mesh.size()}};
}

Mesh mesh_from_json(const nlohmann::json& json) {
  return {json.at("placement").get<std::string>(), json.at("d").get<int>(), json.at("p").get<int>(),
          json.at("t").get<int>()};
}

}  // namespace shardline
