// The programs "counted" and "returned" of golden/make_hard_programs.py: the same buffers, which the first one changes
// in place, and of which the second one returns the new values.
#include "models/program/layers/program_buffers.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/linspace.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "models/files/hf_writer.h"
#include "models/program/program_inputs.h"
#include "tests/models/files/files.h"
#include "tests/models/golden.h"
#include "tests/models/program/program_run.h"

#include "tests/catch.h"

namespace shardline::program_buffers_test {
namespace {

using Catch::Matchers::Contains;

constexpr const char* kPrograms[] = {"counted", "returned"};
constexpr int64_t kFeatures = 8;

Pt2Archive archive_of(const std::string& name) {
  return read_pt2(golden("program/" + name + ".pt2"));
}

std::shared_ptr<const Program> program_of(Pt2Archive archive) {
  return cut_program(std::move(archive), {.predicts = ProgramUse::Predicts::row});
}

// The directory with these values of the program's buffers.
void write_buffers(const std::string& directory, const Program& program, const BufferValues& values) {
  ModelSpec spec;
  for (const auto& buffer : program_buffers(program.archive))
    if (values.contains(buffer.name)) spec.buffers.push_back(buffer);
  HfWriter writer(directory, spec, at::kFloat);
  writer.create(nlohmann::json::object(), {});
  for (const auto& buffer : spec.buffers) writer.write(buffer, values.at(buffer.name));
  writer.finish();
}

}  // namespace

TEST_CASE("buffers have the values of the module after as many calls", "[buffers]") {
  for (const char* name : kPrograms) {
    CAPTURE(name);
    const auto program = program_of(archive_of(name));
    REQUIRE(program->buffers);
    const at::Tensor first = at::linspace(1, 2, kFeatures);
    for (const int64_t steps : {0, 1, 3}) {
      const BufferValues values = buffer_values(*program, steps);
      CHECK(values.size() == 5);
      CHECK(values.at("steps").equal(at::full_like(values.at("steps"), steps)));
      CHECK(values.at("steps").scalar_type() == at::kLong);
      CHECK(values.at("share").equal(first * std::pow(0.5, steps)));
      CHECK(values.at("before").equal(steps == 0 ? first * 0 : first * std::pow(0.5, steps - 1)));
      CHECK(values.at("odd").equal(at::arange(1, 4).to(at::kByte)));
      CHECK(values.at("blocks.0.flags").equal(at::arange(kFeatures).remainder(3) > 0));
    }
  }
}

TEST_CASE("a program that returns its new buffers trains like one that changes them", "[buffers]") {
  std::vector<double> losses;
  for (const char* name : kPrograms) {
    ProgramRun run(program_of(archive_of(name)), at::kDouble);
    const auto program = program_of(archive_of(name));
    const auto batch = sample_batch(*program, at::arange(12).remainder(9).add(3).view({2, 6}), 0);
    for (const int64_t step : {1, 2, 5}) losses.push_back(run.train(batch, 1, step).sum);
  }
  for (size_t i = 0; i < 3; ++i) CHECK(losses[i] == Approx(losses[i + 3]).epsilon(1e-12));
  CHECK(std::abs(losses[0] - losses[1]) > 1e-3);
}

TEST_CASE("files of a program have its buffers and the parameters that no layer uses", "[buffers]") {
  const auto spec = spec_of_program(program_of(archive_of("counted")), 8);
  std::vector<std::string> names;
  for (const auto& buffer : spec.buffers) names.push_back(buffer.name);
  std::ranges::sort(names);
  CHECK(names ==
        std::vector<std::string>{"before", "blocks.0.flags", "odd", "share", "spare.bias", "spare.weight", "steps"});
}

TEST_CASE("a program that is not cut yet takes over the buffers of files", "[buffers]") {
  const ScratchDirectory scratch;
  const auto program = program_of(archive_of("counted"));
  auto values = buffer_values(*program, 3);
  values.at("blocks.0.flags") = ~values.at("blocks.0.flags");
  values.erase("odd");
  write_buffers(scratch.path(), *program, values);
  Pt2Archive next = archive_of("counted");
  read_buffers(HfDirectory(scratch.path()), next);
  CHECK(next.constants.at("blocks.1.flags").equal(values.at("blocks.0.flags")));
  CHECK(next.constants.at("odd").equal(program->archive.constants.at("odd")));
  const auto continued = program_of(std::move(next));
  for (const char* name : {"steps", "share", "before"})
    CHECK(buffer_values(*continued, 2).at(name).equal(buffer_values(*program, 5).at(name)));
}

TEST_CASE("a run continues with the buffers of its checkpoint", "[buffers]") {
  const ScratchDirectory scratch;
  const auto program = program_of(archive_of("returned"));
  auto values = buffer_values(*program, 4);
  write_buffers(scratch.path(), *program, values);
  continue_buffers(HfDirectory(scratch.path()), *program, 4);  // its own
  CHECK(buffer_values(*program, 4).at("steps").item<int64_t>() == 4);

  values.at("steps") = values.at("steps") + 100;
  write_buffers(scratch.path(), *program, values);
  continue_buffers(HfDirectory(scratch.path()), *program, 4);
  CHECK(buffer_values(*program, 6).at("steps").item<int64_t>() == 106);
  CHECK(buffer_values(*program, 6).at("share").equal(buffer_values(*program, 0).at("share") / 64));

  values.at("odd") = values.at("odd") + 1;
  write_buffers(scratch.path(), *program, values);
  CHECK_THROWS_WITH(continue_buffers(HfDirectory(scratch.path()), *program, 4),
                    Contains("the buffer odd has different values from those in") && Contains("returned.pt2"));
}

}  // namespace shardline::program_buffers_test
