#include "pipeline/schedule/files/schedule_file.h"

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "pipeline/schedule/checker.h"
#include "pipeline/schedule/kinds/schedule_generators.h"
#include "pipeline/schedule/pictures/schedule_grid.h"
#include "tests/pipeline/messages_of_errors.h"
#include "tests/pipeline/schedules.h"

#include "tests/catch.h"

namespace shardline::schedule_file_test {
namespace {

std::string written(const std::string& name, const std::string& text) {
  const auto path = std::filesystem::temp_directory_path() / ("shardline-schedule-" + name);
  std::ofstream(path) << text;
  return path.string();
}

Schedule named(Schedule schedule, const std::string& name) {
  schedule.name = name;
  return schedule;
}

}  // namespace

TEST_CASE("cells become a schedule with messages") {
  const auto schedule = schedule_from_cells("F0,F1,B0,B1\nF0,B0,F1,B1\n", "mine");
  CHECK(schedule == named(one_forward_one_backward(2, 2, 0), "mine"));
  CHECK(schedule_from_cells("# two stages\n\n F0 F1; . B0 B1 # end\r\nF0 B0, F1 B1", "mine") == schedule);
}

TEST_CASE("weight cells split the backward pass of their microbatch") {
  const auto schedule = schedule_from_cells("F0 F1 B0 B1 W1\nF0 B0 F1 B1 W1", "half");
  const auto& list = schedule.instructions[1];  // microbatch 0 whole: its gradient is sent after the weights
  CHECK(list[3].op == Op::backward_weight);
  CHECK(list[4].op == Op::send_gradient);
  CHECK(list[8].op == Op::send_gradient);  // before the weights
  CHECK(list[9].op == Op::backward_weight);
  CHECK(check_schedule(schedule).training);
}

TEST_CASE("a printed grid reads as the schedule it shows") {
  for (const auto& schedule : all_schedules(3, 5)) {
    const auto read = schedule_from_cells(text_grid(schedule, 100000), "grid");
    CAPTURE(schedule.name);
    CHECK_NOTHROW(check_schedule(read));
    CHECK(text_grid(read, 100000).size() > 0);
    CHECK(read.stage_of_chunk == schedule.stage_of_chunk);
    if (schedule.name.starts_with("ZB-H")) CHECK(read == named(schedule, "grid"));
  }
}

TEST_CASE("JSON files hold cells, or instructions with or without messages") {
  const auto whole = zb_h1(2, 3, 0);
  const auto with_messages = written("whole.json", nlohmann::json(whole).dump());
  CHECK(read_schedule_file(with_messages) == named(whole, with_messages));

  auto bare = whole;
  for (auto& list : bare.instructions) std::erase_if(list, [](const Instruction& i) { return !computes(i.op); });
  const auto without = written("bare.json", nlohmann::json(bare).dump());
  const auto read = read_schedule_file(without);
  CHECK_NOTHROW(check_schedule(read));
  CHECK(text_grid(read) == text_grid(whole));

  const auto cells = written("cells.json", R"([["F0", "F1", "B0", "B1"], ["F0", "B0", "F1", "B1"]])");
  CHECK(read_schedule_file(cells) == named(one_forward_one_backward(2, 2, 0), cells));
  const auto csv = written("cells.csv", "F0,F1,B0,B1\nF0,B0,F1,B1\n");
  CHECK(make_schedule({csv, 2, 2}) == named(one_forward_one_backward(2, 2, 0), csv));
}

TEST_CASE("reductions in a file are ignored: they follow from the sharding of the run that reads it") {
  for (const auto& schedule : all_schedules(2, 3)) {
    CAPTURE(schedule.name);
    const auto scattered = with_reductions(schedule, true);
    CHECK(scattered != schedule);
    CHECK_NOTHROW(check_schedule(scattered));
    CHECK(with_reductions(scattered, true) == scattered);
    CHECK(with_reductions(scattered, false) == schedule);
    const auto file = written("scattered.json", nlohmann::json(scattered).dump());
    CHECK(read_schedule_file(file) == named(schedule, file));
    auto without = schedule;
    for (auto& list : without.instructions) std::erase_if(list, [](const auto& i) { return is_reduction(i.op); });
    const auto bare = written("without-reductions.json", nlohmann::json(without).dump());
    CHECK(read_schedule_file(bare) == named(schedule, bare));
  }
}

TEST_CASE("files with mistakes are refused, and the error names line and cell") {
  const auto refusal = [](const char* text) { return message_of([&] { schedule_from_cells(text, "bad.csv"); }); };
  CHECK(contains(refusal("F0 B0\nF0 X0"), "bad.csv, line 2: \"X0\" does not begin with F, B or W"));
  CHECK(contains(refusal("F0 B"), "\"B\" has no microbatch"));
  CHECK(contains(refusal("F0/ B0"), "\"F0/\" has no chunk"));
  CHECK(contains(refusal("F0x"), "has extra characters after its numbers"));
  CHECK(contains(refusal("F-1"), "has no microbatch"));
  CHECK(contains(refusal("F99999999"), "has no microbatch"));
  CHECK(contains(refusal("F99999999999999999999"), "has no microbatch"));
  CHECK(contains(refusal(""), "there are no cells"));
  CHECK(contains(refusal("F0/0 B0/0\nF0/0 B0/0"), "chunk 0 has cells on the stages 0 and 1"));
  CHECK(contains(refusal("F0/0 F0/2"), "chunk 1 has no cells"));
  CHECK(contains(message_of([] { read_schedule_file("/nowhere/x.csv"); }), "/nowhere/x.csv cannot be read"));
  CHECK(contains(message_of([] { read_schedule_file(written("broken.json", "[[")); }), "not JSON"));
  CHECK(contains(message_of([] { read_schedule_file(written("row.json", "[1]")); }), "/0: must be an array; got 1"));
  CHECK(
      contains(message_of([] { read_schedule_file(written("cell.json", "[[1]]")); }), "/0/0: must be a string; got 1"));
}

TEST_CASE("a small file does not make a large schedule") {
  const auto sized = [](int microbatches) {
    const nlohmann::json file = {{"name", "x"},
                                 {"stages", 1},
                                 {"microbatches", microbatches},
                                 {"stage_of_chunk", {0}},
                                 {"instructions", {nlohmann::json::array()}}};
    return message_of([&] { read_schedule_file(written("sized.json", file.dump())); });
  };
  CHECK(contains(sized(1000000000), "0 cells are too few for 1000000000 microbatches through 1 chunks"));
  CHECK(contains(sized(-1), "0 cells are too few for -1 microbatches"));
  CHECK(contains(message_of([] { schedule_from_cells("F0/0 F1000000/1", "x.csv"); }), "2 cells are too few for"));
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  CHECK(contains(message_of([&] { read_schedule_file(written("deep.json", deep)); }), "levels of nesting"));
  const auto twice = written("twice.json", R"({"name": "x", "name": "y"})");
  CHECK(contains(message_of([&] { read_schedule_file(twice); }), "/name: the key is given twice"));
}

TEST_CASE("a file for another run, or one that cannot work, is refused with the reason") {
  const auto csv = written("two.csv", "F0,F1,B0,B1\nF0,B0,F1,B1\n");
  CHECK(contains(message_of([&] { make_schedule({csv, 3, 2}); }), "is for 2 stages and 2 microbatches, but this run"));
  CHECK(contains(message_of([&] { make_schedule({csv, 2, 4}); }), "has 2 and 4"));
  CHECK(contains(message_of([&] { make_schedule({csv, 2, 2, 1, 1}); }), "its minimum is 2"));
  CHECK(make_schedule({csv, 2, 2, 1, 2}).microbatches == 2);
  CHECK(contains(message_of([&] { make_schedule({csv, 2, 2, 3}); }), "virtual_pipeline_degree is 3"));
  const auto missing = written("missing.csv", "F0,F1,B0\nF0,B0,F1,B1\n");
  CHECK(contains(message_of([&] { make_schedule({missing, 2, 2}); }), "microbatch 1"));
  const auto backwards = written("backwards.csv", "F0,F1,B1,B0\nF0,F1,B1,B0\n");
  CHECK(contains(message_of([&] { make_schedule({backwards, 2, 2}); }), "ascending order"));
  const auto forward_only = written("forward.csv", "F0,F1\nF0,F1\n");
  CHECK(contains(message_of([&] { make_schedule({forward_only, 2, 2}); }), "has only forward passes"));
  // The order of each stage is valid by itself, but the stages wait for each other.
  const auto circle = written("circle.csv", "F0,B0,F1,B1\nF0,F1,B0,B1\n");
  CHECK(contains(message_of([&] { make_schedule({circle, 2, 2}); }), "wait for each other"));
}

TEST_CASE("unknown names and degrees are refused, and the error lists those that can be used") {
  CHECK(contains(message_of([] { make_schedule({"1f1b", 2, 2}); }), "neither one of \"interleaved\", \"simple\""));
  CHECK(contains(message_of([] { make_schedule({"zbv", 2, 2, 2}); }), "virtual_pipeline_degree is 2"));
  CHECK(contains(message_of([] { make_schedule({"interleaved_1f1b", 2, 2, 0}); }), "at least 1; got 0"));
  CHECK(make_schedule({"interleaved_1f1b", 3, 4, 1}) == one_forward_one_backward(3, 4, 0));
  for (const auto& name : schedule_names()) {
    CHECK(contains(message_of([&] { make_schedule({name, 2, 2, 1, -1}); }), "at least 1"));
    CHECK(contains(message_of([&] { make_schedule({name, 0, 2}); }), "pipeline_parallel_degree"));
    CHECK(contains(message_of([&] { make_schedule({name, 2, 0}); }), "smp_options.microbatches"));
  }
}

}  // namespace shardline::schedule_file_test
