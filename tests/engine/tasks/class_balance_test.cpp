#include "engine/tasks/class_balance.h"

#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::class_balance_test {
namespace {

Examples examples_of(const TempFolder& folder, const ExampleShape& shape, const std::vector<Example>& examples) {
  ExampleWriter writer(shape);
  int64_t row = 0;
  for (Example example : examples) {
    example.row = row++;
    writer.add(example);
  }
  const auto path = folder.path() / "examples";
  writer.write(path, std::string(32, '7'), {.rows = row});
  const auto set = std::make_shared<const ExampleSet>(path);
  return examples_of_rows(set, rows_with_examples(*set));
}

}  // namespace

TEST_CASE("labels of texts are counted, also several of a text") {
  const TempFolder folder;
  HeadChoice head{.kind = HeadChoice::Kind::sequence_classification, .labels = 3};
  head.problem = HeadChoice::Problem::single_label;
  const auto classes =
      examples_of(folder, {.targets = TargetKind::classes, .width = 1},
                  {{.ids = {1}, .targets = {2}}, {.ids = {1}, .targets = {0}}, {.ids = {1}, .targets = {2}}});
  CHECK(count_labels(classes, head) == std::vector<int64_t>{1, 0, 2});
  head.problem = HeadChoice::Problem::multi_label;
  const auto sets = examples_of(folder, {.targets = TargetKind::numbers, .width = 3},
                                {{.ids = {1}, .targets = {1, 0, 1}}, {.ids = {1}, .targets = {0, 0, 1}}});
  CHECK(count_labels(sets, head) == std::vector<int64_t>{1, 0, 2});
  head.problem = HeadChoice::Problem::regression;
  CHECK(count_labels(sets, head).empty());
}

TEST_CASE("tags are counted by token, and other tasks have no labels") {
  const TempFolder folder;
  const auto tags =
      examples_of(folder, {.labels = true},
                  {{.ids = {1, 2, 3}, .labels = {kNoLabel, 1, 1}}, {.ids = {1, 2}, .labels = {0, kNoLabel}}});
  CHECK(count_labels(tags, {.kind = HeadChoice::Kind::token_classification, .labels = 2}) ==
        std::vector<int64_t>{1, 2});
  CHECK(count_labels(tags, {.kind = HeadChoice::Kind::masked_lm}).empty());
}

TEST_CASE("a few labels are described in order, of many the most and least frequent ones") {
  CHECK(describe_labels({3, 1, 0}, {"a", "b", "c"}) == "a 3 (75.0 %), b 1 (25.0 %), c 0 (0.0 %)");
  std::vector<int64_t> counts;
  std::vector<std::string> names;
  for (int64_t label = 0; label < 20; ++label) {
    counts.push_back(10 * label);
    names.push_back("L" + std::to_string(label));
  }
  CHECK(describe_labels(counts, names) ==
        "L19 190 (10.0 %), L18 180 (9.5 %), L17 170 (8.9 %), L16 160 (8.4 %), 12 more, L3 30 (1.6 %), L2 20 (1.1 %), "
        "L1 10 (0.5 %), L0 0 (0.0 %)");
}

TEST_CASE("recorded counts of labels have the same description") {
  const nlohmann::json record = label_counts_json({3, 1}, {"no"});
  CHECK(record == nlohmann::json::parse(R"([{"label": "no", "count": 3}, {"label": "1", "count": 1}])"));
  CHECK(describe_recorded_labels({record, "run.json"}) == "no 3 (75.0 %), 1 1 (25.0 %)");
  for (const char* damaged : {"3", R"([{"label": "no"}])", R"([{"label": "no", "count": -1}])"}) {
    const auto value = nlohmann::json::parse(damaged);
    CHECK_THROWS_AS(describe_recorded_labels({value, "run.json"}), DataError);
  }
}

}  // namespace shardline::class_balance_test
