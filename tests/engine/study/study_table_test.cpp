#include "engine/study/study_table.h"

#include "core/error.h"
#include "core/files/disk_file.h"
#include "engine/study/design_map.h"
#include "engine/study/published.h"
#include "engine/study/study_page.h"
#include "tests/engine/observe/scratch_folder.h"

#include "tests/catch.h"

namespace shardline::study_table_test {
namespace {

using nlohmann::json;

RunRecord run(const std::string& group, int devices, double step_seconds, const json& factors, int seed = 42) {
  RunRecord record{.name = group + ",seed=" + std::to_string(seed),
                   .group = group,
                   .kind = RunKind::measured,
                   .factors = factors,
                   .machine = "local",
                   .devices = devices,
                   .layout = "D=1 P=1 T=1",
                   .global_batch = 32,
                   .batch_per_device = 32.0 / devices,
                   .learning_rate = 5e-5,
                   .samples = 900,
                   .seed = seed,
                   .steps = 87,
                   .nominal_steps = 84.375,
                   .step_seconds = step_seconds,
                   .job_seconds = 87 * step_seconds,
                   .samples_per_second = 32 / step_seconds,
                   .cost = devices * step_seconds};
  record.metrics["eval_f1"] = 0.9 + seed / 1000.0;
  return record;
}

std::vector<RunRecord> scaling() {
  const auto factors = [](int devices) { return json{{"devices", devices}, {"global_batch", 32}}; };
  return {run("one", 1, 1.0, factors(1), 1), run("one", 1, 1.2, factors(1), 2),  run("two", 2, 0.5, factors(2), 1),
          run("two", 2, 0.7, factors(2), 2), run("four", 4, 0.4, factors(4), 1), run("four", 4, 0.4, factors(4), 2)};
}

}  // namespace

TEST_CASE("Repeats become a row with mean, deviation and interval", "[study]") {
  const auto records = scaling();
  const StudyTable table = study_table(records, "eval_f1", "USD");
  REQUIRE(table.rows.size() == 3);
  CHECK(table.columns == std::vector<std::string>{"devices"});
  const StudyRow& one = table.rows[0];
  CHECK(one.runs == 2);
  CHECK(one.step_seconds->mean == Approx(1.1));
  CHECK(*one.step_seconds->deviation == Approx(0.1414213562));
  CHECK(*one.step_seconds->half_width == Approx(1.270620474));  // 0.1 x 12.7062, the t quantile for 1 degree of freedom
  CHECK(one.metric->mean == Approx(0.9015));
}

TEST_CASE("Speed-up and efficiency are relative to the fewest devices that do the same work", "[study]") {
  auto records = scaling();
  const StudyTable table = study_table(records, "", "");
  CHECK(*table.rows[0].speedup == 1);
  const double base = (32 / 1.0 + 32 / 1.2) / 2;
  CHECK(*table.rows[1].speedup == Approx((32 / 0.5 + 32 / 0.7) / 2 / base));
  CHECK(*table.rows[2].speedup == Approx(80 / base));
  CHECK(*table.rows[2].efficiency == Approx(80 / base / 4));
  // There is no speed-up for different work on more devices than the fewest in the table.
  for (auto& record : records)
    if (record.devices == 4) record.factors["samples"] = 1;
  CHECK_FALSE(study_table(records, "", "").rows[2].speedup);
  CHECK_FALSE(study_table(records, "", "").rows[2].efficiency);
  // Nor is there one for a different batch, unless the batch of a device is the same.
  for (auto& record : records) record.factors = {{"devices", record.devices}, {"batch", 32 / record.devices}};
  CHECK_FALSE(study_table(records, "", "").rows[2].speedup);
  for (auto& record : records) record.batch_per_device = 32;
  CHECK(*study_table(records, "", "").rows[2].speedup == Approx(80 / base));
}

TEST_CASE("Ranks that share a batch are compared with a single rank that processes it", "[study]") {
  const std::vector<RunRecord> records = {run("one", 1, 1.0, {{"devices", 1}, {"batch", 32}}),
                                          run("pipeline", 2, 2.0, {{"devices", 2}, {"batch", 32}})};
  const StudyTable table = study_table(records, "", "");
  CHECK(*table.rows[1].speedup == Approx(0.5));
  CHECK(*table.rows[1].efficiency == Approx(0.25));
}

TEST_CASE("Speed-ups compare runs of one learning rate where there are some", "[study]") {
  const auto factors = [](int devices, double rate) { return json{{"devices", devices}, {"learning_rate", rate}}; };
  std::vector<RunRecord> records = {run("1 a", 1, 1.0, factors(1, 1e-3)), run("1 b", 1, 2.0, factors(1, 2e-3)),
                                    run("2 a", 2, 0.5, factors(2, 1e-3)), run("2 b", 2, 0.8, factors(2, 2e-3))};
  const StudyTable table = study_table(records, "", "");
  CHECK(*table.rows[0].speedup == 1);
  CHECK(*table.rows[1].speedup == 1);
  CHECK(*table.rows[1].efficiency == 1);
  CHECK(*table.rows[2].speedup == Approx(2));
  CHECK(*table.rows[3].speedup == Approx(2.5));
  // A learning rate chosen for the number of devices.
  records[3].factors["learning_rate"] = 4e-3;
  CHECK(*study_table(records, "", "").rows[3].speedup == Approx(1.25));
  records[3].factors = {{"devices", 2}, {"learning_rate_scaling", "sqrt"}, {"reference_batch", 32}};
  CHECK(*study_table(records, "", "").rows[3].speedup == Approx(1.25));
}

TEST_CASE("A mean of only some of the repeats is marked", "[study]") {
  auto records = scaling();
  records[0].metrics.clear();
  CHECK(table_text(study_table(records, "eval_f1", "")).find("0.902 (1 of 2 runs)") != std::string::npos);
}

TEST_CASE("Failed runs are excluded from means", "[study]") {
  auto records = scaling();
  records[1].kind = RunKind::failed;
  records[4].kind = records[5].kind = RunKind::failed;
  const StudyTable table = study_table(records, "eval_f1", "");
  CHECK(table.rows[0].step_seconds->mean == 1.0);
  CHECK_FALSE(table.rows[0].step_seconds->deviation);
  CHECK(table.rows[0].failed == 1);
  CHECK(table.rows[2].runs == 0);
  CHECK_FALSE(table.rows[2].speedup);
  const std::string text = table_text(table);
  CHECK(text.find("87 (nominal 84)") != std::string::npos);
  CHECK(text.find("failed") != std::string::npos);
}

TEST_CASE("The CSV has every number, and quotes names with commas", "[study]") {
  auto records = scaling();
  records[0].group = records[1].group = "one, \"quoted\"";
  const std::string csv = table_csv(study_table(records, "eval_f1", ""));
  CHECK(csv.find("\n\"one, \"\"quoted\"\"\",1,measured,local,2,0,1,1,") != std::string::npos);
  CHECK(csv.find(",eval_f1,eval_f1_deviation,eval_f1_low,eval_f1_high,speedup,efficiency\n") != std::string::npos);
  const auto columns = [](const std::string& line) { return std::ranges::count(line, ','); };
  CHECK(columns(csv.substr(0, csv.find('\n'))) == columns(csv.substr(csv.rfind("four"))));
}

TEST_CASE("The map of a design names its largest coefficients", "[study]") {
  auto records = scaling();
  const DesignMap all = design_map(study_table(records, "eval_f1", ""));
  CHECK(all.names == std::vector<std::string>{"devices", "batch per device", "job time", "samples/s", "cost"});
  CHECK(all.chosen == 2);
  // Expected values: numpy.corrcoef for devices 1, 2, 4 and batches 32, 16, 8.
  CHECK(all.largest_of_design()->coefficient == Approx(-0.9285714286));
  CHECK(all.largest_of_results()->one < 2);
  CHECK(all.largest_of_results()->other >= 2);
  CHECK(design_map(study_table({}, "", "")).names.empty());
}

TEST_CASE("A published cost that does not follow from its minutes is a misprint", "[study]") {
  CHECK(cost_of_minutes(60, 2, 3.0).low == Approx(5.95));
  CHECK(cost_of_minutes(60, 2, 3.0).high == Approx(6.05));
  CHECK(cost_of_minutes(0, 1, 60).low == 0);
  auto records = scaling();
  const Prices prices{.currency = "USD", .hourly = {{"local", 3.0}}};
  records[0].published = {.minutes = 60, .cost = 3.03, .metric = {}};  // 59.5 to 60.5 minutes, 2.975 to 3.025, rounded
  records[2].published = {.minutes = 60, .cost = 3.04, .metric = {}};
  records[4].published = {.minutes = {}, .cost = 3.04, .metric = {}};
  const auto rows = published_rows(records, prices);
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].time_ratio.value() == Approx(87.0 / 3600));
  CHECK_FALSE(rows[0].is_misprint);
  CHECK(rows[1].is_misprint);
  CHECK_FALSE(rows[2].cost);
  CHECK(published_cells(rows).size() == 4);
  CHECK(published_cells(rows)[0].back().empty());
  CHECK(published_cells({}).empty());
  records[5].published.metric = 0.9;  // without a time
  const auto cells = published_cells(published_rows(records, prices));
  REQUIRE(cells.size() == 5);
  CHECK(cells[0].back() == "published metric");
  CHECK(cells[1].back().empty());
  CHECK(cells[4].back() == "0.9000");
  CHECK(cells[4][5].empty());  // the ratio
}

TEST_CASE("A study's records are read as they were written", "[study]") {
  const ScratchFolder folder;
  auto records = scaling();
  records[0].published = {.minutes = 12, .cost = {}, .metric = 0.9};
  records[1].kind = RunKind::failed;
  records[1].error = "ended with code 1";
  records[2].kind = RunKind::planned;
  records[2].parameters = 66'955'010;
  records[2].samples.reset();
  records[2].cost.reset();
  const StudySummary summary{.name = "s.json",
                             .metric = "eval_f1",
                             .source = "a table",
                             .prices = {.currency = "USD", .hourly = {{"local", 1.5}}},
                             .records = records};
  write_summary(folder.path(), summary);
  const StudySummary again = read_summary(folder.path());
  REQUIRE(again.records.size() == records.size());
  for (size_t i = 0; i < records.size(); ++i) CHECK(to_json(again.records[i]) == to_json(records[i]));
  CHECK(again.prices.hourly == summary.prices.hourly);
  CHECK(summary_text(again) == summary_text(summary));
  CHECK_THROWS_AS(read_summary(folder.path() + "/none"), ConfigError);
  CHECK_THROWS_AS(record_from_json(json{{"run", "a"}}, "study.jsonl:1"), DataError);
  write_file(records_file(folder.path()), "{\"run\": \"a\"");
  CHECK_THROWS_WITH(read_summary(folder.path()),
                    Catch::Matchers::EndsWith("remove this line to make the study repeat its run"));
}

TEST_CASE("A page has the study's figures, except those that would be empty", "[study]") {
  StudySummary summary{.name = "<study>", .metric = "eval_f1", .source = "", .prices = {}, .records = scaling()};
  for (size_t i = 0; i < summary.records.size(); ++i) summary.records[i].global_batch = 32 << i;
  const std::string page = study_page(summary);
  for (const char* words :
       {"Study &lt;study&gt;", "Time over devices", "Cost over devices", "eval_f1 over global batch", "95 % band",
        "Correlation of the design", "Pareto front", "prefers-color-scheme"})
    CHECK(page.find(words) != std::string::npos);
  for (const char* words : {"<study>", "<script", "http://", "https://", "nan", "inf "}) {
    INFO(words);
    const size_t found = page.find(words);
    CHECK((found == std::string::npos || page.compare(found, 18, "http://www.w3.org/") == 0));
  }
  for (auto& record : summary.records) record.kind = RunKind::failed;
  const std::string empty = study_page(summary);
  CHECK(empty.find("<svg") == std::string::npos);
}

}  // namespace shardline::study_table_test
