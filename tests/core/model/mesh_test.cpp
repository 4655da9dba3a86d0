#include "core/model/mesh.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>

#include "core/error.h"

#include "tests/catch.h"

namespace shardline::mesh_test {
namespace {

const char* const kPlacements[] = {"DPT", "DTP", "PDT", "PTD", "TDP", "TPD"};
constexpr Group kGroups[] = {Group::pp, Group::tp, Group::rdp, Group::dp, Group::mp, Group::world};

// All groups of a kind, in the order of their first ranks: "0,1 2,3".
std::string groups(const Mesh& mesh, Group group) {
  std::ostringstream text;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const auto members = mesh.members(group, rank);
    if (members.front() != rank) continue;
    if (rank > 0) text << ' ';
    for (size_t i = 0; i < members.size(); ++i) text << (i ? "," : "") << members[i];
  }
  return text.str();
}

}  // namespace

TEST_CASE("8 ranks, all degrees 2: coordinates of every placement") {
  // Coordinates (p, t, d) of ranks 0 to 7, as digits.
  const std::map<std::string, std::string> expected = {
      {"DPT", "000 010 100 110 001 011 101 111"}, {"DTP", "000 100 010 110 001 101 011 111"},
      {"PDT", "000 010 001 011 100 110 101 111"}, {"PTD", "000 001 010 011 100 101 110 111"},
      {"TDP", "000 100 001 101 010 110 011 111"}, {"TPD", "000 001 100 101 010 011 110 111"}};
  for (const auto& [placement, coordinates] : expected) {
    const Mesh mesh(placement, 2, 2, 2);
    std::string found;
    for (int rank = 0; rank < 8; ++rank) {
      const auto at = mesh.at(rank);
      found += cat(rank ? " " : "", at.p, at.t, at.d);
    }
    CHECK(found == coordinates);
  }
}

TEST_CASE("8 ranks, all degrees 2: groups of every placement") {
  // Each group of 8 ranks is one of these three kinds of pairs ...
  const std::string near = "0,1 2,3 4,5 6,7", middle = "0,2 1,3 4,6 5,7", far = "0,4 1,5 2,6 3,7";
  // ... or one of the quadruples that leave out one of them.
  const std::string halves = "0,1,2,3 4,5,6,7", quarters = "0,1,4,5 2,3,6,7", parity = "0,2,4,6 1,3,5,7";
  struct Row {
    std::string placement, pp, tp, rdp, mp, dp;
  };
  for (const auto& row :
       {Row{"DPT", middle, near, far, halves, quarters}, Row{"DTP", near, middle, far, halves, parity},
        Row{"PDT", far, near, middle, quarters, halves}, Row{"PTD", far, middle, near, parity, halves},
        Row{"TDP", near, far, middle, quarters, parity}, Row{"TPD", middle, far, near, parity, quarters}}) {
    CAPTURE(row.placement);
    const Mesh mesh(row.placement, 2, 2, 2);
    CHECK(groups(mesh, Group::pp) == row.pp);
    CHECK(groups(mesh, Group::tp) == row.tp);
    CHECK(groups(mesh, Group::rdp) == row.rdp);
    CHECK(groups(mesh, Group::mp) == row.mp);
    CHECK(groups(mesh, Group::dp) == row.dp);
    CHECK(groups(mesh, Group::world) == "0,1,2,3,4,5,6,7");
  }
}

TEST_CASE("8 ranks without tensor parallelism, 2 and 4 stages") {
  const Mesh spread("spread", 4, 2, 1), cluster("cluster", 4, 2, 1);
  CHECK(groups(spread, Group::mp) == "0,4 1,5 2,6 3,7");
  CHECK(groups(spread, Group::dp) == "0,1,2,3 4,5,6,7");
  CHECK(groups(cluster, Group::mp) == "0,1 2,3 4,5 6,7");
  CHECK(groups(cluster, Group::dp) == "0,2,4,6 1,3,5,7");
  CHECK(groups(Mesh("spread", 2, 4, 1), Group::mp) == "0,2,4,6 1,3,5,7");
  CHECK(groups(Mesh("cluster", 2, 4, 1), Group::mp) == "0,1,2,3 4,5,6,7");
}

TEST_CASE("16 ranks on two nodes: tensor groups of 4 side by side, a replica per node") {
  const Mesh mesh("DPT", 2, 2, 4);
  CHECK(groups(mesh, Group::tp) == "0,1,2,3 4,5,6,7 8,9,10,11 12,13,14,15");
  CHECK(groups(mesh, Group::pp) == "0,4 1,5 2,6 3,7 8,12 9,13 10,14 11,15");
  CHECK(groups(mesh, Group::rdp) == "0,8 1,9 2,10 3,11 4,12 5,13 6,14 7,15");
  CHECK(groups(mesh, Group::mp) == "0,1,2,3,4,5,6,7 8,9,10,11,12,13,14,15");
  CHECK(groups(mesh, Group::dp) == "0,1,2,3,8,9,10,11 4,5,6,7,12,13,14,15");
}

TEST_CASE("16 ranks, PTD, 4 stages") {
  const Mesh mesh("PTD", 2, 4, 2);
  CHECK(groups(mesh, Group::pp) == "0,4,8,12 1,5,9,13 2,6,10,14 3,7,11,15");
  CHECK(groups(mesh, Group::tp) == "0,2 1,3 4,6 5,7 8,10 9,11 12,14 13,15");
  CHECK(groups(mesh, Group::rdp) == "0,1 2,3 4,5 6,7 8,9 10,11 12,13 14,15");
  CHECK(groups(mesh, Group::mp) == "0,2,4,6,8,10,12,14 1,3,5,7,9,11,13,15");
  CHECK(groups(mesh, Group::dp) == "0,1,2,3 4,5,6,7 8,9,10,11 12,13,14,15");
}

TEST_CASE("12 ranks, TDP, 3 stages") {
  const Mesh mesh("TDP", 2, 3, 2);
  CHECK(groups(mesh, Group::pp) == "0,1,2 3,4,5 6,7,8 9,10,11");
  CHECK(groups(mesh, Group::tp) == "0,6 1,7 2,8 3,9 4,10 5,11");
  CHECK(groups(mesh, Group::rdp) == "0,3 1,4 2,5 6,9 7,10 8,11");
  CHECK(groups(mesh, Group::mp) == "0,1,2,6,7,8 3,4,5,9,10,11");
  CHECK(groups(mesh, Group::dp) == "0,3,6,9 1,4,7,10 2,5,8,11");
}

TEST_CASE("the developer guide's ranking example is DTP") {
  const Mesh mesh("DTP", 2, 2, 2);
}

TEST_CASE("random degrees: coordinates invert, groups partition the ranks") {
  std::mt19937 random(7);
  const auto degree = [&] { return static_cast<int>(random() % 6) + 1; };
  for (int round = 0; round < 60; ++round) {
    const Mesh mesh(kPlacements[round % 6], degree(), degree(), degree());
    CAPTURE(mesh.placement(), mesh.d(), mesh.p(), mesh.t());
    std::set<std::array<int, 3>> places;
    for (int rank = 0; rank < mesh.size(); ++rank) {
      const auto at = mesh.at(rank);
      REQUIRE(mesh.rank(at) == rank);
      REQUIRE((at.d < mesh.d() && at.p < mesh.p() && at.t < mesh.t()));
      places.insert({at.d, at.p, at.t});
    }
    CHECK(places.size() == static_cast<size_t>(mesh.size()));

    const std::map<Group, int> sizes = {{Group::pp, mesh.p()},
                                        {Group::tp, mesh.t()},
                                        {Group::rdp, mesh.d()},
                                        {Group::dp, mesh.d() * mesh.t()},
                                        {Group::mp, mesh.p() * mesh.t()},
                                        {Group::world, mesh.size()}};
    for (const Group group : kGroups) {
      int firsts = 0;
      for (int rank = 0; rank < mesh.size(); ++rank) {
        const auto members = mesh.members(group, rank);
        REQUIRE(static_cast<int>(members.size()) == sizes.at(group));
        REQUIRE(std::is_sorted(members.begin(), members.end()));
        REQUIRE(std::find(members.begin(), members.end(), rank) != members.end());
        for (const int other : members) REQUIRE(mesh.members(group, other) == members);
        firsts += members.front() == rank;
      }
      CHECK(firsts * sizes.at(group) == mesh.size());
    }
  }
}

TEST_CASE("groups have the members described in the glossary") {
  const Mesh mesh("PDT", 2, 3, 4);
  for (int rank = 0; rank < mesh.size(); ++rank)
    for (int other = 0; other < mesh.size(); ++other) {
      const auto a = mesh.at(rank), b = mesh.at(other);
      const auto together = [&](Group group) {
        const auto members = mesh.members(group, rank);
        return std::count(members.begin(), members.end(), other) == 1;
      };
      REQUIRE(together(Group::pp) == (a.d == b.d && a.t == b.t));
      REQUIRE(together(Group::tp) == (a.d == b.d && a.p == b.p));
      REQUIRE(together(Group::rdp) == (a.p == b.p && a.t == b.t));
      REQUIRE(together(Group::dp) == (a.p == b.p));
      REQUIRE(together(Group::mp) == (a.d == b.d));
    }
}

TEST_CASE("neighbouring replicas share a copy; parts over T go to ascending ranks") {
  const Mesh four("DPT", 4, 1, 1);
  CHECK(four.copies(1) == 4);
  CHECK(four.copies(4) == 1);
  CHECK(four.shared(3, 1) == SharePlace{3, 0});
  CHECK(four.shared(3, 2) == SharePlace{1, 1});
  CHECK(four.shared(3, 4) == SharePlace{0, 3});

  // With D = 2, T = 2 and one copy: ranks 0 to 3 of stage 0 by their coordinates (d, t).
  const Mesh cluster("DPT", 2, 1, 2), spread("TPD", 2, 1, 2);
  CHECK(cluster.part_over_t({.d = 1, .t = 0}, 2) == 2);  // rank 2
  CHECK(spread.part_over_t({.d = 1, .t = 0}, 2) == 1);   // rank 1
  CHECK(spread.part_over_t({.d = 1, .t = 1}, 1) == 1);   // a copy for each replica

  for (const char* placement : kPlacements)
    for (const int degree : {1, 2, 3, 6}) {
      const Mesh mesh(placement, 6, 2, 4);
      CAPTURE(placement, degree);
      for (int rank = 0; rank < mesh.size(); ++rank) {
        const auto at = mesh.at(rank);
        const auto place = mesh.shared(at.d, degree);
        REQUIRE(mesh.replica(place, degree) == at.d);
        REQUIRE((place.copy < mesh.copies(degree) && place.part < degree));
        int before = 0;  // ranks of the same stage and copy
        for (const int other : mesh.members(Group::dp, rank))
          before += other < rank && mesh.shared(mesh.at(other).d, degree).copy == place.copy;
        REQUIRE(mesh.part_over_t(at, degree) == before);
      }
    }
  CHECK_THROWS_AS(four.copies(3), InvariantError);
  CHECK_THROWS_AS(four.copies(0), InvariantError);
  CHECK_THROWS_AS(four.shared(4, 2), InvariantError);
  CHECK_THROWS_AS(four.replica({2, 0}, 2), InvariantError);
}

TEST_CASE("placements and groups have the documented names") {
  CHECK(Mesh("cluster", 2, 3, 4) == Mesh("DPT", 2, 3, 4));
  CHECK(Mesh("spread", 2, 3, 4) == Mesh("TPD", 2, 3, 4));
  CHECK(Mesh("spread", 1, 1, 1).placement().letters() == "TPD");
  CHECK_FALSE(Mesh("DPT", 2, 3, 4) == Mesh("DTP", 2, 3, 4));
  CHECK(placement_names() == std::vector<std::string>{"cluster", "spread", "DPT", "DTP", "PDT", "PTD", "TDP", "TPD"});
  CHECK(Placement() == "cluster");
  for (const auto& name : placement_names()) {
    const Placement placement = name;
    CHECK(Placement(placement.letters()) == placement);
    CHECK(Placement(to_string(placement)) == placement);
    CHECK(nlohmann::json(placement).get<Placement>() == placement);
  }
  CHECK(to_string(Placement("TPD")) == "spread");
  CHECK(to_string(Placement("PDT")) == "PDT");
  CHECK(to_string(Group::rdp) == std::string("rdp"));
  CHECK(to_string(Group::world) == std::string("world"));
}

TEST_CASE("an invalid mesh is refused, and the error states the rule and the value") {
  for (const char* placement : {"", "DP", "DPP", "DPTD", "dpt", "Cluster", "clusters", "DXT"}) {
    CAPTURE(placement);
    try {
      Mesh(placement, 1, 1, 1);
      FAIL("accepted");
    } catch (const ConfigError& error) {
      CHECK(std::string(error.what()).find(cat('"', placement, '"')) != std::string::npos);
      CHECK(std::string(error.what()).find("placement_strategy") != std::string::npos);
    }
  }
  CHECK_THROWS_AS(Mesh("DPT", 0, 1, 1), ConfigError);
  CHECK_THROWS_AS(Mesh("DPT", 1, -1, 1), ConfigError);
  CHECK_THROWS_AS(Mesh("DPT", 1, 1, 0), ConfigError);
  const Mesh mesh("DPT", 2, 2, 2);
  CHECK_THROWS_AS(mesh.at(8), InvariantError);
  CHECK_THROWS_AS(mesh.at(-1), InvariantError);
  CHECK_THROWS_AS(mesh.rank({2, 0, 0}), InvariantError);
  CHECK_THROWS_AS(mesh.rank({0, 0, -1}), InvariantError);
}

TEST_CASE("a mesh read back from JSON equals the original") {
  const Mesh mesh("PTD", 2, 4, 3);
  const nlohmann::json json = mesh;
  CHECK(json["size"] == 24);
  CHECK(mesh_from_json(nlohmann::json::parse(json.dump())) == mesh);
}

}  // namespace shardline::mesh_test
