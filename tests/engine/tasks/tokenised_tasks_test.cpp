// Tokenised rows as examples of the tasks with labels, and predictions for them.
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <set>

#include "core/error.h"
#include "engine/tasks/labels.h"
#include "engine/tasks/question_answering.h"
#include "engine/tasks/sequence_classification.h"
#include "engine/tasks/token_classification.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::tokenised_tasks_test {
namespace {

using Catch::Contains;
using nlohmann::json;
using Ids = std::vector<int32_t>;

constexpr int32_t kNone = kNoLabel;

// Ids: 0 [PAD], 1 [UNK], 2 [CLS], 3 [SEP], 4 [MASK], 5 a, 6 ##b, 7 c, 8 d
constexpr const char* kVocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##b\nc\nd\n";

struct Place {
  Place() { folder.write("vocab.txt", kVocabulary); }
  TokenizerPtr tokenizer() const { return load_tokenizer(folder.path().string()); }

  // What a task makes of the rows of this file for `predict` and evaluations.
  Predicted examples(const LabelledTask& task, const std::vector<json>& rows, bool labelled) const {
    std::string lines;
    for (const json& row : rows) lines += row.dump() + '\n';
    const DataFile file{folder.write("rows.jsonl", lines), DataFormat::jsonl};
    const auto path = prepare_examples({.files = {file},
                                        .shape = task.shape(),
                                        .encode = [&](const DataRow& row) { return task.encode(row, labelled); },
                                        .settings = cat(task.settings(), labelled),
                                        .cache_folder = folder.path() / "cache"});
    const auto set = std::make_shared<const ExampleSet>(path);
    examples_ = {set, Selection(0, set->size())};
    return {examples_, {}, {file}};
  }
  std::vector<json> predictions(const LabelledTask& task, const std::vector<json>& rows,
                                const std::function<at::Tensor(int64_t tokens)>& logits) const {
    Predicted predicted = examples(task, rows, /*labelled=*/false);
    int64_t tokens = 0;
    for (int64_t i = 0; i < predicted.data.size(); ++i) tokens += predicted.data.set->tokens(i);
    predicted.logits = logits(tokens);
    std::vector<json> all;
    task.predictions(predicted, [&](const json& one) { all.push_back(one); });
    return all;
  }

  TempFolder folder;
  mutable Examples examples_;
};

Config config_of(const std::string& task) {
  Config config;
  config.task = task;
  config.data.sequence_length = 6;
  return config;
}

HeadChoice classes(HeadChoice::Kind kind, std::vector<std::string> names) {
  return {.kind = kind,
          .labels = std::ssize(names),
          .problem = HeadChoice::Problem::single_label,
          .names = std::move(names)};
}

template <class Call>
std::string error_of(Call&& call) {
  return message_of<DataError>(call);
}

}  // namespace

TEST_CASE("sequence-classification: a tokenised row is an example as it is, with its label in any usual column") {
  const Place place;
  const Config config = config_of("sequence-classification");
  const auto head = classes(HeadChoice::Kind::sequence_classification, {"no", "yes"});
  const auto task = sequence_classification(config, head, place.tokenizer());
  const auto encode = [&](json columns, bool labelled = true) {
    columns.update({{"input_ids", {2, 5, 3, 8, 3, 0}},
                    {"attention_mask", {1, 1, 1, 1, 1, 0}},
                    {"token_type_ids", {0, 0, 0, 1, 1, 0}}});
    return task->encode({columns, "a.jsonl:2"}, labelled);
  };
  for (const char* column : {"label", "labels"}) {
    const RowExamples made = encode({{column, "yes"}});
    REQUIRE(made.examples.size() == 1);
    CHECK_FALSE(made.shortened);
    CHECK(made.examples[0].ids == Ids{2, 5, 3, 8, 3});
    CHECK(made.examples[0].types == std::vector<uint8_t>{0, 0, 0, 1, 1});
    CHECK(made.examples[0].targets == std::vector<float>{1});
  }
  CHECK(encode({{"label", nullptr}, {"labels", 1}}).examples.at(0).targets == std::vector<float>{1});
  CHECK(encode(json::object(), false).examples.at(0).targets == std::vector<float>{kNone});
  CHECK_THAT(error_of([&] { encode(json::object()); }), Contains("a.jsonl:2: has no 'label'"));
  CHECK_THAT(error_of([&] {
               task->encode({{{"input_ids", json::array()}}, "a.jsonl:2"}, false);
             }),
             Contains("a.jsonl:2: 'input_ids' has no tokens"));
  CHECK_THAT(error_of([&] {
               task->encode({{{"input_ids", {5, 5, 5, 5, 5, 5, 5}}}, "a.jsonl:2"}, false);
             }),
             Contains("has 7 tokens, more than a sample of 6"));
}

TEST_CASE("labels of tokenised rows are those of `labels` without -100, and lists of numbers are not names") {
  const Place place;
  Config config = config_of("token-classification");
  config.model.config = {{"model_type", "bert"}};
  const auto labelled = [&](const char* lines) {
    config.data.train = {place.folder.write("a.jsonl", lines)};
    return with_labels_of_data(config).model.config;
  };
  CHECK(labelled(R"({"input_ids": [2, 5, 3], "labels": [-100, "O", -100]}
                    {"input_ids": [2, 5, 3], "labels": [-100, "B-X", -100]})")["id2label"] ==
        json({{"0", "B-X"}, {"1", "O"}}));
  config.task = "sequence-classification";
  CHECK(labelled(R"({"input_ids": [2, 5, 3], "labels": 1}
                    {"input_ids": [2, 5, 3], "labels": 0})")["id2label"] == json({{"0", "0"}, {"1", "1"}}));
  CHECK_THAT(error_of([&] { labelled(R"({"input_ids": [2, 5, 3], "labels": [0.5, 1.0]})"); }),
             Contains("a.jsonl:1: 'labels' is a list with 0.5, but a list names labels"));
  CHECK(labelled(R"({"input_ids": [2, 5, 3], "labels": [0.0, 1.0]})") ==
        json{{"model_type", "bert"}, {"num_labels", 2}, {"problem_type", "multi_label_classification"}});
}

TEST_CASE("columns of tokenised rows that a model of transformers would read otherwise are refused") {
  const Place place;
  const auto encode = [&](const char* model_type, const char* column, const json& values) {
    Config config = config_of("sequence-classification");
    config.model.config = {{"model_type", model_type}};
    const auto head = classes(HeadChoice::Kind::sequence_classification, {"no", "yes"});
    const json row = {{"input_ids", {2, 5, 3}}, {column, values}};
    return sequence_classification(config, head, place.tokenizer())->encode({row, "a.jsonl:2"}, false).examples.size();
  };
  CHECK(encode("bert", "token_type_ids", {0, 1, 1}) == 1);
  CHECK(encode("distilbert", "token_type_ids", {0, 1, 1}) == 1);  // not given to the model
  CHECK(encode("gpt2", "token_type_ids", {0, 0, 0}) == 1);
  for (const char* adds_words : {"gpt2", "gpt_neo", "gptj"})
    CHECK_THAT(error_of([&] {
                 encode(adds_words, "token_type_ids", {0, 1, 1});
               }),
               Contains("a.jsonl:2: 'token_type_ids' has the type 1"));
  CHECK(encode("bert", "position_ids", {0, 1, 2}) == 1);
  CHECK_THAT(error_of([&] { encode("bert", "position_ids", {0, 1, 0}); }), Contains("'position_ids' is 0 again"));
  for (const char* shifts : {"roberta", "xlm-roberta"})
    CHECK_THAT(error_of([&] {
                 encode(shifts, "position_ids", {2, 3, 4});
               }),
               Contains("'position_ids' must be left out"));
}

TEST_CASE("token-classification: words that truncation cuts off on the left have no tag") {
  const Place place;
  place.folder.write("tokenizer_config.json", R"({"truncation_side": "left"})");
  const auto head = classes(HeadChoice::Kind::token_classification, {"O", "B-X"});
  const auto task = token_classification(config_of("token-classification"), head, place.tokenizer());
  const std::string nothing = "\xE2\x80\x8B";  // a character that BERT drops
  const json row = {{"tokens", {"a", "c", "d", "ab", "d", nothing}}, {"label", {"O", "O", "O", "B-X", "O", "O"}}};
  const RowExamples made = task->encode({row, "a.jsonl:2"}, true);
  CHECK(made.shortened);
  REQUIRE(made.examples.size() == 1);
  CHECK(made.examples[0].ids == Ids{2, 8, 5, 6, 8, 3});
  CHECK(made.examples[0].labels == Ids{kNone, 0, 1, kNone, 0, kNone});
  const auto predictions = place.predictions(*task, {row}, [](int64_t count) {
    return at::zeros({count, 2}, at::kDouble);
  });
  CHECK(predictions.at(0)["tags"] == json({nullptr, nullptr, "O", "O", "O", nullptr}));
}

TEST_CASE("token-classification: each token of a tokenised row has its own label, or none with -100") {
  const Place place;
  const auto head = classes(HeadChoice::Kind::token_classification, {"O", "B-X"});
  const auto task = token_classification(config_of("token-classification"), head, place.tokenizer());
  const json tokens = {{"input_ids", {2, 5, 6, 3, 0}}, {"attention_mask", {1, 1, 1, 1, 0}}};
  json row = tokens;
  row["labels"] = {-100, "B-X", -100, -100, -100};
  const RowExamples made = task->encode({row, "a.jsonl:2"}, true);
  REQUIRE(made.examples.size() == 1);
  CHECK(made.examples[0].ids == Ids{2, 5, 6, 3});
  CHECK(made.examples[0].labels == Ids{kNone, 1, kNone, kNone});
  row["labels"] = {0, 1};
  CHECK_THAT(error_of([&] {
               task->encode({row, "a.jsonl:2"}, true);
             }),
             Contains("a.jsonl:2: 'labels' has 2 tags for 5 tokens"));

  const auto predictions = place.predictions(*task, {tokens, tokens}, [](int64_t count) {
    CHECK(count == 8);
    at::Tensor logits = at::zeros({count, 2}, at::kDouble);
    logits[5][1] = 3;  // the second token of the second row
    return logits;
  });
  REQUIRE(predictions.size() == 2);
  CHECK(predictions[0]["tags"] == json({"O", "O", "O", "O", nullptr}));
  CHECK(predictions[1]["tags"] == json({"O", "B-X", "O", "O", nullptr}));
  CHECK(predictions[1]["scores"][4].is_null());
}

TEST_CASE("token-classification: words without tokens have no tag, and each row has a prediction") {
  const Place place;
  const auto head = classes(HeadChoice::Kind::token_classification, {"O", "B-X"});
  const auto tags_of = [&](const TokenizerPtr& tokenizer, const std::vector<std::vector<std::string>>& sentences) {
    const auto task = token_classification(config_of("token-classification"), head, tokenizer);
    std::vector<json> rows;
    for (const auto& words : sentences) rows.push_back({{"tokens", words}});
    std::vector<json> tags;
    for (const json& one : place.predictions(*task, rows, [](int64_t count) {
           return at::zeros({count, 2}, at::kDouble);
         })) {
      CHECK(one["scores"].size() == one["tags"].size());
      tags.push_back(one["tags"]);
    }
    return tags;
  };
  const std::string nothing = "\xE2\x80\x8B";  // a character that BERT drops
  const auto parsed = [](const char* tags) { return json::parse(tags).get<std::vector<json>>(); };
  CHECK(tags_of(place.tokenizer(), {{"a", nothing, "ab"}, {nothing}, {}, {"a", nothing}}) ==
        parsed(R"([["O", null, "O"], [null], [], ["O", null]])"));
  CHECK(tags_of(place.tokenizer(), {{"a", "c", nothing, "d", "a", "c", nothing}}) ==
        parsed(R"([["O", "O", null, "O", "O"]])"));  // cut off after four tokens
  CHECK(tags_of(load_tokenizer("bytes"), {{"a"}, {}, {"", "a"}}) == parsed(R"([["O"], [], [null, "O"]])"));
}

TEST_CASE("question-answering: a tokenised row is a window with the places of its answer") {
  const Place place;
  Config config = config_of("question-answering");
  config.data.n_best_size = 3;
  const auto task = question_answering(config, place.tokenizer());
  // [CLS] a [SEP] c d [SEP]
  const json tokens = {{"input_ids", {0, 2, 5, 3, 7, 8, 3}}, {"attention_mask", {0, 1, 1, 1, 1, 1, 1}}};
  const auto with = [&](int begin, int end) {
    json row = tokens;
    row["start_positions"] = begin;
    row["end_positions"] = end;
    return row;
  };
  const RowExamples made = task->encode({with(4, 5), "a.jsonl:2"}, true);
  REQUIRE(made.examples.size() == 1);
  CHECK(made.examples[0].ids == Ids{2, 5, 3, 7, 8, 3});
  CHECK(made.examples[0].targets == std::vector<float>{3, 4});
  CHECK(task->encode({tokens, "a.jsonl:2"}, false).examples.at(0).targets == std::vector<float>{0, 0});
  for (const int begin : {0, 7, -1})
    CHECK_THAT(error_of([&] {
                 task->encode({with(begin, 4), "a.jsonl:2"}, true);
               }),
               Contains("a.jsonl:2: 'start_positions' must be the place of a token in 'input_ids'"));
  CHECK_THAT(error_of([&] { task->encode({with(5, 4), "a.jsonl:2"}, true); }), Contains("'end_positions' is before"));
  CHECK_THAT(error_of([&] { task->encode({tokens, "a.jsonl:2"}, true); }), Contains("has no 'start_positions'"));

  // The largest logits are in the question, where no answer begins.
  const auto logits = [](int64_t count) {
    at::Tensor all = at::zeros({count, 2}, at::kDouble);
    for (int64_t first = 0; first < count; first += 6) {
      all[first + 1][0] = all[first + 1][1] = 9;
      all[first + 3][0] = 5;
      all[first + 4][1] = 5;
    }
    return all;
  };
  json named = tokens;
  named["id"] = "q1";
  const auto predictions = place.predictions(*task, {named, tokens}, logits);
  REQUIRE(predictions.size() == 2);
  CHECK(predictions[0]["answer"] == "c d");
  CHECK(predictions[0]["id"] == "q1");
  CHECK(predictions[0]["start"] == 4);
  CHECK(predictions[0]["end"] == 6);

  Predicted evaluated = place.examples(*task, {with(4, 5), with(4, 4)}, /*labelled=*/true);
  evaluated.logits = logits(12);
  const MetricValues metrics = task->metrics(evaluated);
  CHECK(metrics.at(0) == std::pair<std::string, double>("exact_match", 50));
  CHECK(metrics.at(1).second == Approx(100 * (1 + 2.0 / 3) / 2));

  // An evaluation of diverged weights has no metric, but predictions from them would be wrong.
  evaluated.logits[5][1] = std::numeric_limits<double>::quiet_NaN();
  for (const auto& [name, value] : task->metrics(evaluated)) CHECK(std::isnan(value));
  config.data.version_2_with_negative = true;
  for (const auto& [name, value] : question_answering(config, place.tokenizer())->metrics(evaluated))
    CHECK((name.ends_with("total") ? value == 2 : std::isnan(value)));
  const auto diverged = [&](int64_t) { return evaluated.logits; };
  CHECK_THROWS_AS(place.predictions(*task, {named, tokens}, diverged), RunError);
}

}  // namespace shardline::tokenised_tasks_test
