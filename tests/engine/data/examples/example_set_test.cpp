#include "engine/data/examples/example_set.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>

#include <fstream>
#include <random>

#include "core/error.h"
#include "engine/data/dataset/example_source.h"
#include "engine/data/examples/prepare_examples.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::example_set_test {
namespace {

using Catch::Contains;
using Ids = std::vector<int64_t>;

bool are(const at::Tensor& got, const Ids& expected) {
  return at::equal(got, at::tensor(expected, at::kLong));
}

const std::string kDigest(32, '7');

ExampleSet write_and_open(const TempFolder& folder, const ExampleShape& shape, const std::vector<Example>& examples) {
  ExampleWriter writer(shape);
  for (const Example& example : examples) writer.add(example);
  const auto path = folder.path() / "set.bin";
  writer.write(path, kDigest, {.rows = 5, .shortened = 1, .left_out = 2});
  return ExampleSet(path);
}

}  // namespace

TEST_CASE("a microbatch contains the tokens of its examples one after the other, without padding") {
  const TempFolder folder;
  const ExampleShape shape{.types = true, .targets = TargetKind::classes, .width = 1};
  const ExampleSet set = write_and_open(folder, shape,
                                        {{.ids = {1, 2, 3}, .types = {0, 1, 1}, .targets = {2}, .row = 0},
                                         {.ids = {4}, .targets = {kNoLabel}, .row = 2},
                                         {.ids = {5, 6}, .types = {0, 1}, .targets = {0}, .row = 4}});
  CHECK(set.size() == 3);
  CHECK(set.rows() == 5);
  CHECK(set.shortened() == 1);
  CHECK(set.left_out() == 2);
  CHECK(set.digest() == kDigest);
  CHECK(set.is_intact());
  CHECK(set.shape() == shape);
  CHECK(set.row(2) == 4);
  CHECK(set.weight(0) == 1);
  CHECK(set.weight(1) == 0);
  const Microbatch batch = set.microbatch(Ids{2, 0, 1}, 7);
  CHECK(are(batch.ids, {5, 6, 1, 2, 3, 4}));
  CHECK(are(batch.types, {0, 1, 0, 1, 1, 0}));
  CHECK(are(batch.positions, {0, 1, 0, 1, 2, 0}));
  CHECK(batch.places.is_same(batch.positions));
  CHECK(are(batch.samples, {7, 7, 8, 8, 8, 9}));
  CHECK(are(batch.segment_samples, {7, 8, 9}));
  CHECK(are(batch.segment_places, {0, 0, 0}));
  CHECK(are(batch.targets, {0, 2, kNoLabel}));
  CHECK(batch.ends == Ids{2, 5, 6});
  CHECK_FALSE(batch.is_rectangular);
  CHECK(batch.position_count == 3);
  CHECK_FALSE(batch.labels.defined());
  const Microbatch none = set.microbatch(Ids{}, 3);
  CHECK(none.tokens() == 0);
  CHECK(none.targets.size(0) == 0);
}

TEST_CASE("examples may have a label for each token, numbers as targets, or the positions of an answer") {
  const TempFolder folder;
  const ExampleSet tagged = write_and_open(folder, {.labels = true}, {{.ids = {1, 2, 3}, .labels = {-100, 4, -100}}});
  CHECK(tagged.weight(0) == 1);
  CHECK(are(tagged.microbatch(Ids{0}, 0).labels, {-100, 4, -100}));
  CHECK(tagged.continues(0).empty());
  const ExampleSet words =
      write_and_open(folder, {.words = true}, {{.ids = {1, 2}}, {.ids = {1, 2, 3}, .continues = {0, 1, 0}}});
  CHECK(std::ranges::equal(words.continues(0), std::vector{0, 0}));
  CHECK(std::ranges::equal(words.continues(1), std::vector{0, 1, 0}));
  CHECK_FALSE(tagged.microbatch(Ids{0}, 0).targets.defined());
  const ExampleSet numbers = write_and_open(folder, {.targets = TargetKind::numbers, .width = 2},
                                            {{.ids = {1}, .targets = {0.5, 1}}, {.ids = {1}, .targets = {-1, 0}}});
  CHECK(at::equal(numbers.microbatch(Ids{1, 0}, 0).targets, at::tensor({-1.0F, 0.0F, 0.5F, 1.0F}).view({2, 2})));
  const ExampleSet answers = write_and_open(folder, {.targets = TargetKind::answers, .width = 2},
                                            {{.ids = {1}, .targets = {3, 5}}, {.ids = {1}, .targets = {-100, -100}}});
  CHECK(are(answers.microbatch(Ids{0, 1}, 0).targets.view({-1}), {3, 5, -100, -100}));
  CHECK(answers.weight(0) == 1);
  CHECK(answers.weight(1) == 0);
}

TEST_CASE("a validation split counts only rows that become examples") {
  const TempFolder folder;
  const auto set = std::make_shared<const ExampleSet>(write_and_open(
      folder, {}, {{.ids = {1}, .row = 2}, {.ids = {2}, .row = 2}, {.ids = {3}, .row = 3}, {.ids = {4}, .row = 4}}));
  const Selection rows = rows_with_examples(*set);
  CHECK(rows.size() == 3);  // the first two of five rows have no examples
  CHECK(rows[0] == 2);
  const auto examples = [&](int64_t held_out) {
    const auto [validation, train] = rows.divided(held_out, std::nullopt);
    const Examples first = examples_of_rows(set, validation), rest = examples_of_rows(set, train);
    CHECK(first[0] == 0);
    CHECK(rest[0] == first.size());
    return std::pair(first.size(), rest.size());
  };
  CHECK(examples(1) == std::pair<int64_t, int64_t>(2, 2));
  CHECK(examples(2) == std::pair<int64_t, int64_t>(3, 1));
  const Examples some = examples_of_rows(set, Selection(std::vector<uint32_t>{2, 4}));
  CHECK(some.size() == 3);
  CHECK(some[2] == 3);
}

TEST_CASE("except for dropout, packed examples are computed like separate samples") {
  const TempFolder folder;
  const auto set = std::make_shared<const ExampleSet>(write_and_open(folder, {.labels = true},
                                                                     {{.ids = {1, 2, 3}, .labels = {-100, 3, -100}},
                                                                      {.ids = {4, 5, 6, 7}, .labels = {5, 6, 7, -100}},
                                                                      {.ids = {8}, .labels = {-100}},
                                                                      {.ids = {9, 9}, .labels = {9, -100}}}));
  const Examples all{set, Selection(0, 4)};
  ExampleSource apart(all, {.global_batch = 4, .shuffle = false});
  ExampleSource packed(all, {.global_batch = 4, .shuffle = false}, {.packed_length = 5});
  CHECK(packed.samples() == 2);
  CHECK_THAT(packed.describe(), Contains("4 examples, 10 tokens, longest 4, packed into 2 samples"));
  const Batch one = apart.batch(0, {0, 4}), other = packed.batch(0, {0, 4});
  CHECK(other.tokens == one.tokens);
  CHECK(other.weight == one.weight);
  CHECK(other.global_samples == 2);
  CHECK(other.sample_ends == Ids{2, 4});  // examples 0 and 3, 1 and 2
  CHECK(other.rows.ends == Ids{3, 5, 9, 10});
  CHECK(are(other.rows.ids, {1, 2, 3, 9, 9, 4, 5, 6, 7, 8}));
  CHECK(are(other.rows.labels, {-100, 3, -100, 9, -100, 5, 6, 7, -100, -100}));
  CHECK(are(other.rows.positions, {0, 1, 2, 0, 1, 0, 1, 2, 3, 0}));
  CHECK(are(other.rows.places, {0, 1, 2, 3, 4, 0, 1, 2, 3, 4}));
  CHECK(are(other.rows.samples, {0, 0, 0, 0, 0, 1, 1, 1, 1, 1}));
  CHECK(are(other.rows.segment_samples, {0, 0, 1, 1}));
  CHECK(are(other.rows.segment_places, {0, 3, 0, 4}));
  CHECK_FALSE(other.rows.is_rectangular);
  CHECK(other.segments_of({1, 1}) == Range{2, 2});
  const Batch second = packed.batch(0, {1, 1});
  CHECK(are(second.rows.ids, {4, 5, 6, 7, 8}));
  CHECK(are(second.rows.segment_samples, {1, 1}));
  CHECK(second.weight == one.weight);
}

TEST_CASE("an incomplete file of examples is refused, and damage inside a file is detected") {
  const TempFolder folder;
  write_and_open(folder, {.targets = TargetKind::classes, .width = 1}, {{.ids = {1, 2, 3}, .targets = {2}}});
  const auto path = folder.path() / "set.bin";
  std::string good;
  {
    std::ifstream file(path, std::ios::binary);
    good.assign(std::istreambuf_iterator<char>(file), {});
  }
  const auto with = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    return ExampleSet(path).is_intact();
  };
  CHECK(with(good));
  for (size_t size = 0; size < good.size(); ++size) CHECK_THROWS_AS(with(good.substr(0, size)), DataError);
  CHECK_THROWS_AS(with(good + 'x'), DataError);
  for (size_t i = 0; i < good.size(); ++i) {
    CAPTURE(i);
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    bool intact = false;
    try {
      intact = with(bad);
    } catch (const DataError&) {
    }
    CHECK_FALSE(intact);
  }
}

TEST_CASE("examples are made once, in the order of the rows, for any number of threads") {
  const TempFolder folder;
  std::string csv = "text,label\n";
  constexpr int kRows = 3000;
  for (int i = 0; i < kRows; ++i) csv += cat("t", i, ",", i % 3, "\n");
  const std::string path = folder.write("a.csv", csv);
  std::atomic<int> encoded = 0;
  ExampleSetOptions options{.files = {{path, DataFormat::csv}},
                            .shape = {.targets = TargetKind::classes, .width = 1},
                            .encode =
                                [&](const DataRow& row) {
                                  ++encoded;
                                  const int number = std::stoi(row.columns.at("text").get<std::string>().substr(1));
                                  RowExamples made;
                                  for (int i = 0; i <= number % 2; ++i)  // every other row has two
                                    made.examples.push_back({.ids = std::vector<int32_t>(1 + number % 5, number),
                                                             .targets = {static_cast<float>(number % 3)}});
                                  made.shortened = number % 10 == 0;
                                  return made;
                                },
                            .settings = "a",
                            .cache_folder = folder.path() / "cache"};
  for (const int threads : {1, 7}) {
    options.threads = threads;
    options.settings = cat("threads ", threads);
    const ExampleSet set(prepare_examples(options));
    REQUIRE(set.size() == kRows * 3 / 2);
    CHECK(set.rows() == kRows);
    CHECK(set.shortened() == kRows / 10);
    bool same = true;
    for (int64_t i = 0; i < set.size(); ++i) {
      const int64_t row = set.row(i);
      same = same && row == i / 3 * 2 + (i % 3 > 0) && set.ids(i)[0] == row && set.tokens(i) == 1 + row % 5 &&
             set.targets(i)[0] == row % 3;
    }
    CHECK(same);
  }
  CHECK(encoded == 2 * kRows);
  const auto made = prepare_examples(options);
  CHECK(encoded == 2 * kRows);
  std::filesystem::resize_file(made, 200);  // damaged: made again
  CHECK(ExampleSet(prepare_examples(options)).size() == kRows * 3 / 2);
  CHECK(encoded == 3 * kRows);
  options.files = {{folder.write("b.csv", "text,label\n"), DataFormat::csv}};
  CHECK_THAT(message_of<DataError>([&] { prepare_examples(options); }), Contains("no examples"));
}

TEST_CASE("rows that are left out are not counted as shortened") {
  const TempFolder folder;
  const std::string path = folder.write("a.csv", "text\nwhole\nshortened\nleft out\nleft out\nblank\n");
  const auto encode = [](const DataRow& row) {
    const std::string text = row.columns.at("text");
    RowExamples made{.examples = {}, .shortened = text == "shortened" || text == "left out"};
    if (text == "whole" || text == "shortened") made.examples.push_back({.ids = {1, 2}});
    return made;
  };
  const ExampleSetOptions options{.files = {{path, DataFormat::csv}},
                                  .shape = {},
                                  .encode = encode,
                                  .settings = "a",
                                  .cache_folder = folder.path() / "cache"};
  const auto set = std::make_shared<const ExampleSet>(prepare_examples(options));
  CHECK(set->shortened() == 1);
  CHECK(set->left_out() == 2);
  const ExampleSource source({set, rows_with_examples(*set)}, {.global_batch = 1});
  CHECK_THAT(source.describe(), Contains("2 examples, 4 tokens, longest 2, 1 rows shortened, 2 rows left out"));
}

TEST_CASE("the tokens of all rows are cut into chunks, and those left over are counted") {
  const TempFolder folder;
  const std::string path = folder.write("a.txt", "1\n22\n\n333\n4444444\n");
  ExampleSetOptions options{.files = {{path, DataFormat::text}},
                            .shape = {.types = true, .labels = true, .words = true},
                            .encode = [](const DataRow& row) -> RowExamples {
                              const auto text = row.columns.at("text").get<std::string>();
                              Example example;
                              for (size_t i = 0; i < text.size(); ++i) {
                                example.ids.push_back(text[i] - '0');
                                example.labels.push_back(i == 0 ? kNoLabel : text[i] - '0');
                                example.types.push_back(text.size() % 2);
                                example.continues.push_back(i > 0);
                              }
                              if (text.empty()) return {};
                              return {.examples = {example}};
                            },
                            .chunk = 5,
                            .settings = "a",
                            .cache_folder = folder.path() / "cache"};
  const ExampleSet set(prepare_examples(options));
  REQUIRE(set.size() == 2);
  CHECK(set.rows() == 2);
  CHECK(set.left_over() == 3);
  CHECK(std::ranges::equal(set.ids(0), std::vector{1, 2, 2, 3, 3}));
  CHECK(std::ranges::equal(set.labels(0), std::vector{-100, -100, 2, -100, 3}));
  CHECK(std::ranges::equal(set.continues(0), std::vector{0, 0, 1, 0, 1}));
  CHECK(std::ranges::equal(set.ids(1), std::vector{3, 4, 4, 4, 4}));
  CHECK(are(set.microbatch(Ids{1}, 0).types, {1, 1, 1, 1, 1}));
  CHECK(set.row(1) == 1);
  options.chunk = 14;
  CHECK_THAT(message_of<DataError>([&] { prepare_examples(options); }),
             Contains("13 tokens, less than one sample of 14"));
}

TEST_CASE("a source of examples makes batches as a function of the step, and divides them among replicas") {
  const TempFolder folder;
  std::vector<Example> examples;
  for (int i = 0; i < 10; ++i)
    examples.push_back({.ids = std::vector<int32_t>(1 + i, i), .targets = {i == 3 ? float{kNoLabel} : 1.0F}});
  const auto set = std::make_shared<const ExampleSet>(
      write_and_open(folder, {.targets = TargetKind::classes, .width = 1}, examples));
  ExampleSource source({set, Selection(2, 7)}, {.global_batch = 4, .shuffle = false});
  CHECK(source.samples() == 7);
  CHECK(source.steps_per_epoch() == 2);
  const Batch first = source.batch(0, {0, 4}), half = source.batch(2, {2, 2}), last = source.batch(1, {2, 2});
  CHECK(first.sample_index == Ids{2, 3, 4, 5});
  CHECK(first.tokens == 3 + 4 + 5 + 6);
  CHECK(first.weight == 3);
  CHECK(first.global_samples == 4);
  CHECK(half.sample_index == Ids{4, 5});
  CHECK(half.first_sample == 2);
  CHECK(half.tokens == first.tokens);
  CHECK(half.epoch == Approx(1.5));
  CHECK(at::equal(half.rows.ids, first.rows.ids.slice(0, 7)));
  CHECK(are(half.rows.segment_samples, {2, 3}));
  CHECK(last.sample_index == Ids{8});
  CHECK(last.global_samples == 3);
  CHECK(source.batch(1, {3, 1}).rows.tokens() == 0);
}

}  // namespace shardline::example_set_test
