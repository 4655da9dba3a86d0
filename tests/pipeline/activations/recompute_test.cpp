#include "pipeline/activations/recompute.h"

#include "tests/catch.h"

namespace shardline::recompute_test {
namespace {

Recompute named(const char* name) {
  return recompute_strategy(name).value();
}

}  // namespace

TEST_CASE("strategies are read as they are printed, and other texts are refused") {
  for (const char* name : {"none", "selective", "each", "contiguous", "group_2", "group_17"})
    CHECK(to_string(named(name)) == name);
  CHECK(named("group_1") == named("each"));
  for (const char* name : {"", "Each", "group_", "group_0", "group_02", "group_-1", "group_2x", "group_+2", "group_1.5",
                           "group_99999999999", "group_ 2", "full"}) {
    CAPTURE(name);
    CHECK_FALSE(recompute_strategy(name));
  }
}

TEST_CASE("groups are cut from the front, within a chunk and among equal neighbours") {
  using Groups = std::vector<LayerGroup>;
  const std::vector<int> chunk = {2, 3, 4, 5, 6};
  const auto all = [](const char* name) { return std::vector<Recompute>(8, named(name)); };
  const Groups single = {{0}, {1}, {2}, {3}, {4}};
  CHECK(layer_groups(chunk, {}) == single);
  CHECK(layer_groups(chunk, all("selective")) == single);
  CHECK(layer_groups(chunk, all("each")).size() == 5);
  CHECK(layer_groups(chunk, all("group_2")) == Groups{{0, 2, true}, {2, 2, true}, {4, 1, true}});
  CHECK(layer_groups(chunk, all("contiguous")) == Groups{{0, 5, true}});

  auto mixed = all("group_3");
  mixed[4] = named("none");
  CHECK(layer_groups(chunk, mixed) == Groups{{0, 2, true}, {2, 1, false}, {3, 2, true}});
  mixed[4] = named("each");
  CHECK(layer_groups(chunk, mixed) == Groups{{0, 2, true}, {2, 1, true}, {3, 2, true}});
  CHECK(layer_groups({}, mixed).empty());
  // Layers without a backward pass are in no group.
  CHECK(layer_groups(chunk, all("contiguous"), chunk[2]) ==
        Groups{{0, 1, false, false}, {1, 1, false, false}, {2, 3, true}});
}

}  // namespace shardline::recompute_test
