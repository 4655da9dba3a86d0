#include "engine/train/measured_run.h"

#include <fstream>

#include "core/error.h"
#include "engine/observe/memory_usage.h"
#include "tests/models/files/files.h"

#include "tests/catch.h"

namespace shardline::measured_run_test {

using Catch::Contains;

namespace {

std::string step_line(int step, double seconds, int ranks) {
  std::string line =
      cat(R"({"step": )", step, R"(, "loss": null, "step_seconds": )", seconds, R"(, "bubble_fraction": )",
          seconds / 10, R"(, "tokens_per_second": )", 100 / seconds, R"(, "peak_memory_bytes": [)");
  for (int rank = 0; rank < ranks; ++rank)
    line += cat(rank ? ", " : "", R"({"counted": )", 1000 * rank + step, R"(, "resident": 1})");
  return line + "]}\n";
}

}  // namespace

TEST_CASE("measured values are medians of all steps except the first, and the peak memory of each rank") {
  const ScratchDirectory scratch;
  std::ofstream file(scratch / "metrics.jsonl");
  file << step_line(1, 50, 2);
  CHECK(file.flush());
  CHECK(measured_run(scratch.path()).step_seconds == 50);  // if there is no other step
  CHECK(measured_run(scratch.path()).steps == 1);
  file << step_line(2, 4, 2) << R"({"step": 2, "epoch": 1, "eval_loss": 3})"
       << "\n"
       << step_line(3, 1, 2) << step_line(4, 2, 3);
  CHECK(file.flush());
  const MeasuredRun run = measured_run(scratch.path());
  CHECK(run.steps == 3);
  CHECK(run.step_seconds == 2);
  CHECK(run.bubble_fraction == Approx(0.2));
  CHECK(run.tokens_per_second == Approx(50));
  CHECK(run.counted_bytes == std::vector<double>{4, 1004, 2004});
}

TEST_CASE("a run without steps, or with damaged lines, is refused") {
  const ScratchDirectory scratch;
  CHECK_THROWS_WITH(measured_run(scratch.path()), Contains("cannot be read"));
  put(scratch / "metrics.jsonl", "{\"step\": 1, \"eval_loss\": 2}\n");
  CHECK_THROWS_WITH(measured_run(scratch.path()), Contains("no step yet"));
  put(scratch / "metrics.jsonl", step_line(1, 1, 1) + "{\"step\": ");
  CHECK_THROWS_WITH(measured_run(scratch.path()), Contains("metrics.jsonl:2"));
}

TEST_CASE("unexpected types and large numbers in the lines of a run are tolerated") {
  const ScratchDirectory scratch;
  put(scratch / "metrics.jsonl", R"({"step_seconds": "1", "bubble_fraction": null, "tokens_per_second": [2]}
{"step_seconds": 1.5e308, "bubble_fraction": 0, "tokens_per_second": 1, "peak_memory_bytes": [{"counted": "many"}, 3]}
{"step_seconds": 1.7e308, "bubble_fraction": 0, "tokens_per_second": 1, "peak_memory_bytes": [{"counted": 7}]}
)");
  const MeasuredRun run = measured_run(scratch.path());
  CHECK(run.steps == 2);
  CHECK(run.step_seconds == 1.6e308);
  CHECK(run.counted_bytes == std::vector<double>{7, 0});
}

TEST_CASE("reading the metrics of a long run of many ranks takes little memory") {
  const ScratchDirectory scratch;
  constexpr int kSteps = 5000, kRanks = 128;
  {
    std::ofstream file(scratch / "metrics.jsonl");
    for (int step = 1; step <= kSteps; ++step) file << step_line(step, 1, kRanks);
  }
  const bool is_restarted = static_cast<bool>(std::ofstream("/proc/self/clear_refs") << "5" << std::flush);
  REQUIRE(is_restarted);  // peak_resident begins at what is resident now
  const int64_t before = process_memory().resident;
  CHECK(measured_run(scratch.path()).steps == kSteps - 1);
  CHECK(process_memory().peak_resident - before < 20 << 20);
}

}  // namespace shardline::measured_run_test
