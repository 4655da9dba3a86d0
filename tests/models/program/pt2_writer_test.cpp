#include "models/program/pt2_writer.h"

#include <ATen/TensorOperators.h>

#include "core/error.h"
#include "tests/models/program/words_program.h"

#include "tests/catch.h"

namespace shardline::pt2_writer_test {

using namespace words_program;

TEST_CASE("a program is written with new weights and is otherwise unchanged", "[pt2]") {
  const ScratchDirectory scratch;
  const Pt2Archive before = read_pt2(path());
  reserve_pt2(before, scratch / "after.pt2");
  const auto reserved = std::filesystem::file_size(scratch / "after.pt2");
  write_pt2(
      before,
      [&](const std::string& name) {
        if (name == "places.weight") return at::Tensor();
        return (name == "scale" ? before.constants.at(name) : before.weights->tensor(name)) + 1;
      },
      scratch / "after.pt2");
  const Pt2Archive after = read_pt2(scratch / "after.pt2");
  CHECK(after.names == before.names);
  CHECK(after.graph.nodes.size() == before.graph.nodes.size());
  CHECK(after.constants.at("scale").equal(before.constants.at("scale") + 1));
  REQUIRE(after.weights->tensors().size() == before.weights->tensors().size());
  for (const auto& [name, entry] : before.weights->tensors()) {
    CAPTURE(name);
    const double change = name == "places.weight" ? 0 : 1;
    CHECK(after.weights->tensor(name).equal(before.weights->tensor(name) + change));
  }
  CHECK(std::filesystem::file_size(scratch / "after.pt2") <= reserved);
}

TEST_CASE("a program that cannot be written is an error", "[pt2]") {
  const ScratchDirectory scratch;
  const Pt2Archive archive = read_pt2(path());
  const auto keep = [](const std::string&) { return at::Tensor(); };
  CHECK_THROWS_AS(write_pt2(archive, keep, scratch / "none/after.pt2"), RunError);
}

}  // namespace shardline::pt2_writer_test
