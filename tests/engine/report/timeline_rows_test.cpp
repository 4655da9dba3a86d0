#include "engine/report/timeline_rows.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/error.h"
#include "core/files/disk_file.h"
#include "engine/observe/timeline.h"
#include "tests/engine/observe/scratch_folder.h"

#include "tests/catch.h"

namespace shardline::timeline_rows_test {
namespace {

using nlohmann::json;

// The trace of one rank, as a run writes it.
json trace_of(const std::vector<InstructionRecord>& records) {
  const Mesh mesh(Placement(), 1, 1, 1);
  std::ostringstream out;
  ChromeTrace trace(mesh, 10, out);
  StepRecords step{.start = 10, .end = 14};
  step.instructions = records;
  trace.add(rank_timeline(mesh, 0, step, 0));
  trace.finish();
  return json::parse(out.str());
}

}  // namespace

TEST_CASE("A trace becomes the rows of its ranks", "[report]") {
  InstructionRecord forward{.instruction = {.op = Op::forward, .microbatch = 3, .chunk = 0}};
  forward.start = 11;
  forward.end = 12.5;
  InstructionRecord weight{.instruction = {.op = Op::backward_weight, .microbatch = 0, .chunk = 0}};
  weight.start = 13;
  weight.end = 13.25;
  InstructionRecord reduction{.instruction = {.op = Op::end_gradients}};
  reduction.start = reduction.end = 13.5;
  const RunTimeline timeline = timeline_in(trace_of({forward, weight, reduction}), "step-2.json", 2);
  REQUIRE(timeline.rows.size() == 1);
  CHECK(timeline.rows[0].label == "rank 0 (d 0, p 0, t 0)");
  REQUIRE(timeline.rows[0].boxes.size() == 2);
  const PictureBox& first = timeline.rows[0].boxes[0];
  CHECK(first.instruction == forward.instruction);
  CHECK(first.start == Approx(1));
  CHECK(first.end == Approx(2.5));
  CHECK(timeline.rows[0].boxes[1].instruction == weight.instruction);
  CHECK(timeline.seconds == Approx(3.25));
}

TEST_CASE("Names with a chunk are read, and events that are no instructions are left out", "[report]") {
  json events = json::array();
  for (const std::string name : {"B2/1", "F", "Fx", "B2/", "X1", std::string(1, '\0').c_str(), ""})
    events.push_back({{"ph", "X"}, {"cat", "instructions"}, {"pid", 5}, {"ts", 1}, {"dur", 2}, {"name", name}});
  const RunTimeline timeline = timeline_in({{"traceEvents", events}}, "step-1.json", 1);
  REQUIRE(timeline.rows.size() == 1);
  REQUIRE(timeline.rows[0].boxes.size() == 1);
  CHECK(timeline.rows[0].boxes[0].instruction == Instruction{.op = Op::backward_input, .microbatch = 2, .chunk = 1});
  CHECK_THROWS_AS(timeline_in({{"traceEvents", {1}}}, "step-1.json", 1), DataError);
  CHECK_THROWS_AS(timeline_in(json::object(), "step-1.json", 1), DataError);
}

TEST_CASE("The first step with a timeline is shown", "[report]") {
  const ScratchFolder folder;
  CHECK_FALSE(read_timeline(folder.path()));
  std::filesystem::create_directories(folder.path() + "/timeline");
  CHECK_FALSE(read_timeline(folder.path()));
  for (const int step : {10, 2})
    write_file(cat(folder.path(), "/timeline/step-", step, ".json"),
               trace_of({{.instruction = {.op = Op::forward, .microbatch = 0}, .start = 11, .end = 12}}).dump());
  write_file(folder.path() + "/timeline/step-x.json", "{}");
  CHECK(read_timeline(folder.path())->step == 2);
  write_file(folder.path() + "/timeline/step-1.json", "{");
  CHECK_THROWS_AS(read_timeline(folder.path()), DataError);
}

}  // namespace shardline::timeline_rows_test
