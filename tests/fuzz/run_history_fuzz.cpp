// metrics.jsonl and a step's timeline, as `shardline report` reads them.
#include <cmath>
#include <filesystem>
#include <optional>

#include "core/files/disk_file.h"
#include "engine/observe/recorded_metrics.h"
#include "engine/report/timeline_rows.h"
#include "tests/fuzz/fuzz.h"

namespace shardline::run_history_fuzz {
namespace {

void check_timeline(const RunTimeline& timeline) {
  FUZZ_REQUIRE(std::isfinite(timeline.seconds) && timeline.seconds >= 0, timeline.seconds);
  for (const auto& row : timeline.rows)
    for (const auto& box : row.boxes) {
      FUZZ_REQUIRE(box.start >= 0 && box.end >= box.start && box.end <= timeline.seconds, box.start, " to ", box.end);
      FUZZ_REQUIRE(computes(box.instruction.op), to_string(box.instruction));
    }
  if (timeline.seconds > 0) interval_picture("step", timeline.rows, timeline.seconds);
}

}  // namespace

FUZZ_TARGET(run_history) {
  auto files = fuzz::files_of(data, size, {"metrics.jsonl", "step-2.json"});
  fuzz::fill_folder(files);
  bool accepted = true;
  if (files.contains("metrics.jsonl")) {
    std::optional<RecordedMetrics> metrics;
    accepted = fuzz::accepts(size, [&] { metrics = read_metrics((fuzz::folder() / "metrics.jsonl").string()); });
    if (metrics)
      for (const auto& rank : metrics->most_memory) FUZZ_REQUIRE(rank.counted >= 0 && rank.resident >= 0, rank.counted);
  }
  if (files.contains("step-2.json")) {
    std::filesystem::create_directory(fuzz::folder() / "timeline");
    rename_file((fuzz::folder() / "step-2.json").string(), (fuzz::folder() / "timeline/step-2.json").string());
    std::optional<RunTimeline> timeline;
    accepted &= fuzz::accepts(size, [&] { timeline = read_timeline(fuzz::folder().string()); });
    if (timeline) check_timeline(*timeline);
  }
  return accepted;
}

}  // namespace shardline::run_history_fuzz
