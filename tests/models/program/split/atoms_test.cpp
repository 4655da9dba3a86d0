#include "models/program/split/atoms.h"

#include "tests/catch.h"

namespace shardline::atoms_test {

TEST_CASE("a view divides a dimension and all dimensions merged with it", "[split]") {
  Atoms atoms;
  const Dimension columns = atoms.make(12), other = atoms.make(12);
  atoms.unite(columns, other);
  const auto parts = atoms.cut(columns, {3, 4});
  REQUIRE(parts);
  CHECK(atoms.size_of((*parts)[0]) == 3);
  CHECK(atoms.resolved(other) == Dimension{(*parts)[0][0], (*parts)[1][0]});
}

TEST_CASE("dimensions with different divisions get both divisions", "[split]") {
  Atoms atoms;
  const Dimension a = atoms.make(24), b = atoms.make(24);
  REQUIRE(atoms.cut(a, {2, 12}));
  REQUIRE(atoms.cut(b, {4, 6}));
  atoms.unite(a, b);
  CHECK(atoms.resolved(a) == atoms.resolved(b));
  CHECK(atoms.resolved(a).size() == 3);
  for (const int atom : atoms.resolved(a)) CHECK(atoms.why_not(atom).empty());
}

TEST_CASE("dimensions that cannot be aligned are not split", "[split]") {
  Atoms atoms;
  const Dimension a = atoms.make(6), b = atoms.make(6), c = atoms.make(4);
  REQUIRE(atoms.cut(a, {2, 3}));
  REQUIRE(atoms.cut(b, {3, 2}));
  atoms.unite(a, b);
  for (const int atom : atoms.resolved(b)) CHECK(!atoms.why_not(atom).empty());
  CHECK(!atoms.cut(c, {3, 1}));
  atoms.unite(c, atoms.make(2));
  CHECK(!atoms.why_not(atoms.resolved(c)[0]).empty());
}

TEST_CASE("a forbidden split also applies to the parts of a dimension and to dimensions merged with it", "[split]") {
  Atoms atoms;
  const Dimension a = atoms.make(6), b = atoms.make(2);
  atoms.forbid(a, "first");
  atoms.forbid(a, "second");
  const auto parts = atoms.cut(a, {2, 3});
  REQUIRE(parts);
  atoms.unite((*parts)[0], b);
  CHECK(atoms.why_not(atoms.resolved(b)[0]) == "first");
}

TEST_CASE("dimensions of size 1 have no atoms", "[split]") {
  Atoms atoms;
  CHECK(atoms.make(1).empty());
  CHECK(atoms.cut(atoms.make(5), {1, 5, 1}) == std::optional(Dimensions{{}, {0}, {}}));
}

}  // namespace shardline::atoms_test
