#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/error.h"
#include "pipeline/schedule/checker.h"
#include "pipeline/schedule/pictures/schedule_grid.h"
#include "pipeline/schedule/schedule_simulation.h"
#include "tests/pipeline/schedules.h"

#include "tests/catch.h"

namespace shardline::schedules_document_test {
namespace {

Schedule example(const std::string& name, int stages, int microbatches) {
  return make_schedule({name, stages, microbatches, name == "interleaved_1f1b" ? 2 : 1});
}

std::string grid(const std::string& name) {
  return "\n```\n" + text_grid(example(name, 4, 8), 100000) + "```\n\n";
}

std::string decimal(double value) {
  std::ostringstream text;
  text << std::round(10 * value) / 10;
  return text.str();
}

// The table row of one schedule, in units of a stage.
std::string row(const std::string& name, int stages, int microbatches) {
  const auto schedule = example(name, stages, microbatches);
  const double chunks = schedule.chunks() / stages;  // per stage; each costs a stage's cost divided by this
  const auto report = check_schedule(schedule);
  const auto simulation = simulate(schedule, kUnboundedSends, [](int, const Instruction&) { return 1.0; });
  double longest = 0;
  int live = 0, kept = 0, now = 0;
  for (size_t stage = 0; stage < schedule.instructions.size(); ++stage) {
    double first = simulation.makespan(), last = 0;
    now = 0;
    for (size_t i = 0; i < schedule.instructions[stage].size(); ++i) {
      const Op op = schedule.instructions[stage][i].op;
      if (op > Op::backward_weight) continue;
      first = std::min(first, simulation.intervals[stage][i].start);
      last = std::max(last, simulation.intervals[stage][i].end);
      kept = std::max(kept, now += op == Op::forward);
      now -= op == Op::backward_weight;
    }
    longest = std::max(longest, last - first);
    live = std::max(live, report.peak_activations[stage]);
  }
  return cat("| `", name, "` | ", stages, " | ", microbatches, " | ", decimal(simulation.makespan() / chunks), " | ",
             decimal(longest / chunks), " | ", decimal(100 * bubble_fraction(schedule)), " % | ",
             decimal(live / chunks), " | ", decimal(kept / chunks), " |\n");
}

std::string table() {
  std::string text =
      "\n| `pipeline` | p | m | Step | Longest stage | Bubble of the step | Live | With weights |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- |\n";
  for (const int microbatches : {8, 32})
    for (const auto& name : schedule_names()) text += row(name, 4, microbatches);
  return text + "\n";
}

// The text between a "<!-- NAME -->" line and its "<!-- end -->".
std::string made(const std::string& name) {
  return name == "table" ? table() : grid(name.substr(name.find(' ') + 1));
}

// The document with its generated parts regenerated.
std::string renewed(const std::string& document) {
  std::string result;
  size_t at = 0;
  const std::string open = "<!-- ", close = " -->\n", end = "<!-- end -->";
  for (size_t begin; (begin = document.find(open, at)) != std::string::npos;) {
    const size_t name_ends = document.find(close, begin), stop = document.find(end, begin);
    REQUIRE(name_ends < stop);
    REQUIRE(stop != std::string::npos);
    const auto name = document.substr(begin + open.size(), name_ends - begin - open.size());
    result += document.substr(at, name_ends + close.size() - at) + made(name);
    at = stop;
    result += end;
    at += end.size();
  }
  return result + document.substr(at);
}

std::string read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

// SHARDLINE_WRITE_DOCS=1 writes the generated parts into the file instead.
TEST_CASE("docs/schedules.md shows the schedules as they are") {
  const auto path = std::filesystem::path(SHARDLINE_SOURCE_DIR) / "docs/schedules.md";
  const auto document = read(path);
  const auto current = renewed(document);
  if (std::getenv("SHARDLINE_WRITE_DOCS")) std::ofstream(path, std::ios::binary) << current;
  INFO("run pipeline_tests with SHARDLINE_WRITE_DOCS=1 to write " << path);
  CHECK((read(path) == current));
  for (const auto& name : schedule_names()) {
    CHECK(document.find("<!-- grid " + name + " -->") != std::string::npos);
    CHECK(document.find("\n## " + name + "\n") != std::string::npos);
  }
}

}  // namespace shardline::schedules_document_test
