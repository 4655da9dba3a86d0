// metrics.jsonl and a file of TensorBoard events in an output directory: what `shardline plan --from-run` reads, and
// the records that a run keeps when it continues, which are only complete records of the file, in their order.
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "engine/observe/metrics_log.h"
#include "engine/observe/tensorboard.h"
#include "engine/train/measured_run.h"
#include "tests/fuzz/fuzz.h"

namespace shardline::run_records_fuzz {
namespace {

constexpr int64_t kStep = 7;

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Whether `part` is `whole` with some of its bytes removed.
bool is_left_of(std::string_view part, std::string_view whole) {
  size_t found = 0;
  for (size_t byte = 0; byte < whole.size() && found < part.size(); ++byte) found += whole[byte] == part[found];
  return found == part.size();
}

// Returns the part of the file that is kept.
std::string check_kept(const std::string& path, size_t size, void (*keep)(const std::string& path, int64_t step)) {
  const std::string whole = bytes_of(path);
  FUZZ_REQUIRE(fuzz::accepts(size, [&] { keep(path, kStep); }), "records are not kept");
  std::string kept = bytes_of(path);
  FUZZ_REQUIRE(is_left_of(kept, whole), "other bytes are kept");
  keep(path, kStep);
  FUZZ_REQUIRE(bytes_of(path) == kept, "less is kept when nothing is left to remove");
  return kept;
}

void check_lines(const std::string& kept) {
  FUZZ_REQUIRE(kept.empty() || kept.back() == '\n', "a part of a line is kept");
  std::istringstream lines(kept);
  for (std::string line; std::getline(lines, line);)
    FUZZ_REQUIRE(nlohmann::json::parse(line).at("step") <= kStep, line);
}

// A record is the length of its message, four bytes, the message, and four bytes.
void check_events(std::string_view kept) {
  while (!kept.empty()) {
    uint64_t length = kept.size();
    if (kept.size() >= sizeof length) std::memcpy(&length, kept.data(), sizeof length);
    FUZZ_REQUIRE(kept.size() >= 16 && length <= kept.size() - 16, "a part of a record is kept");
    kept.remove_prefix(length + 16);
  }
}

void check_run(const MeasuredRun& run, size_t size) {
  FUZZ_REQUIRE(run.steps >= 1, run.steps);
  for (const double number : {run.step_seconds, run.bubble_fraction, run.tokens_per_second})
    FUZZ_REQUIRE(std::isfinite(number), number);
  FUZZ_REQUIRE(run.counted_bytes.size() <= size, run.counted_bytes.size(), " ranks");
  for (const double bytes : run.counted_bytes) FUZZ_REQUIRE(std::isfinite(bytes) && bytes >= 0, bytes);
}

}  // namespace

FUZZ_TARGET(run_records) {
  auto files = fuzz::files_of(data, size, {"metrics.jsonl", "events"});
  fuzz::fill_folder(files);
  bool accepted = true;
  if (files.contains("metrics.jsonl")) {
    std::optional<MeasuredRun> run;
    accepted = fuzz::accepts(size, [&] { run = measured_run(fuzz::folder().string()); });
    if (accepted) check_run(*run, size);
    check_lines(check_kept((fuzz::folder() / "metrics.jsonl").string(), size, keep_metrics_until));
  }
  if (files.contains("events")) check_events(check_kept((fuzz::folder() / "events").string(), size, keep_events_until));
  return accepted;
}

}  // namespace shardline::run_records_fuzz
