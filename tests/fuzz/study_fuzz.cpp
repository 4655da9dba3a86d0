// A study's file, its prices, and what is in its directory: what is accepted can be written and read back, and its
// tables have only finite numbers.
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "engine/study/published.h"
#include "engine/study/study_file.h"
#include "engine/study/study_summary.h"
#include "engine/study/study_table.h"
#include "tests/fuzz/fuzz.h"

namespace shardline::study_fuzz {
namespace {

void check_study(const StudyFile& study) {
  FUZZ_REQUIRE(!study.points.empty() && !study.output_dir.empty(), "a study without runs or directory");
  FUZZ_REQUIRE(study.repeats >= 1 && (study.seeds.empty() || std::cmp_equal(study.seeds.size(), study.repeats)),
               study.repeats);
  std::set<std::string> names;
  for (const auto& point : study.points) {
    FUZZ_REQUIRE(names.insert(point.name).second, "two runs are called ", point.name);
    FUZZ_REQUIRE(point.name.find('/') == std::string::npos && !point.name.empty() && point.name[0] != '.', "the run ",
                 point.name, " leaves the directory");
    FUZZ_REQUIRE(point.factors.is_object(), "factors are no object");
  }
  for (const auto& key : varied_factors(study.points)) factor_text(study.points.front().factors, key);
}

void check_summary(const StudySummary& summary) {
  const std::string directory = fuzz::folder().string();
  const StudyTable table = study_table(summary.records, summary.metric, summary.prices.currency);
  for (const auto& row : table.rows)
    for (const auto& spread : {row.step_seconds, row.job_seconds, row.samples_per_second})
      FUZZ_REQUIRE(!spread || spread->mean >= 0, "a negative time");
  const std::string text = summary_text(summary) + table_csv(table);
  write_summary(directory, summary);
  FUZZ_REQUIRE(summary_text(read_summary(directory)) == summary_text(summary), "other records are read back: ", text);
}

}  // namespace

FUZZ_TARGET(study) {
  auto files = fuzz::files_of(data, size, {"study-file.json", "prices.json", "study.json", "study.jsonl"});
  fuzz::fill_folder(files);
  // A matrix multiplies the memory that its values take.
  constexpr fuzz::Allowance kOfMatrix{.fixed = 64 << 20, .per_byte = 65536};
  bool accepted = true;
  if (files.contains("study-file.json")) {
    std::optional<StudyFile> study;
    accepted = fuzz::accepts(
        size, [&] { study = read_study((fuzz::folder() / "study-file.json").string()); }, kOfMatrix);
    if (study) check_study(*study);
  }
  if (files.contains("prices.json")) {
    std::optional<Prices> prices;
    accepted &= fuzz::accepts(size, [&] { prices = read_prices((fuzz::folder() / "prices.json").string()); });
    if (prices)
      for (const auto& [machine, price] : prices->hourly) FUZZ_REQUIRE(price >= 0 && std::isfinite(price), machine);
  }
  if (files.contains("study.jsonl") && files.contains("study.json")) {
    std::optional<StudySummary> summary;
    accepted &= fuzz::accepts(size, [&] { summary = read_summary(fuzz::folder().string()); });
    if (summary) check_summary(*summary);
  }
  return accepted;
}

}  // namespace shardline::study_fuzz
