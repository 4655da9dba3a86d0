// The rank geometry: D replicas x P pipeline stages x T tensor-parallel ranks, mapped to ascending ranks by a
// placement. A plain value; other code calls it instead of doing rank arithmetic.
//
//   rank = i(s0)*n(s1)*n(s2) + i(s1)*n(s2) + i(s2)
//
// for the axes s0, s1, s2 of the placement.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/model/placement.h"

namespace shardline {

struct Coordinates {
  int d = 0, p = 0, t = 0;
  bool operator==(const Coordinates&) const = default;
};

// What differs between the members of a group: in pp the stage, in tp the tensor rank, in rdp the replica, in dp
// replica and tensor rank (all holders of one stage), in mp stage and tensor rank (one whole model), in world
// everything.
enum class Group { pp, tp, rdp, dp, mp, world };
const char* to_string(Group group);

// A replica's place if groups of `degree` adjacent replicas share a copy of something.
struct SharePlace {
  int copy = 0;  // which of the D / degree copies
  int part = 0;  // which of the degree parts of that copy
  bool operator==(const SharePlace&) const = default;
};

class Mesh {
 public:
  // Throws ConfigError for degrees below 1.
  Mesh(const Placement& placement, int d, int p, int t);

  const Placement& placement() const { return placement_; }
  int d() const { return d_; }
  int p() const { return p_; }
  int t() const { return t_; }
  int size() const { return d_ * p_ * t_; }

  Coordinates at(int rank) const;
  int rank(Coordinates place) const;

  std::vector<int> members(Group group, int rank) const;  // ascending global ranks, including `rank`

  // Sharded data parallelism. degree: number of adjacent replicas that share a copy, a divisor of D.
  int copies(int degree) const;
  SharePlace shared(int d, int degree) const;       // the place of replica d
  int replica(SharePlace place, int degree) const;  // the inverse
  // The index of a rank's part of data that is also split over the T ranks of those replicas, into degree x T parts in
  // ascending order of ranks.
  int part_over_t(Coordinates place, int degree) const;

  bool operator==(const Mesh&) const = default;

 private:
  Placement placement_;
  int d_, p_, t_;
};

void to_json(nlohmann::json& json, const Mesh& mesh);
Mesh mesh_from_json(const nlohmann::json& json);

}  // namespace shardline
