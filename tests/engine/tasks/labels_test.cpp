#include "engine/tasks/labels.h"

#include "core/error.h"
#include "engine/config/config.h"
#include "engine/config/rules/model_rules.h"
#include "engine/config/rules/saving_rules.h"
#include "engine/data/examples/example_set.h"
#include "engine/tasks/task.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::labels_test {
namespace {

using Catch::Contains;
using nlohmann::json;

Config config_of(const std::string& task, const json& data, const json& training = json::object()) {
  json file = {{"task", task},
               {"model",
                {{"config",
                  {{"model_type", "bert"},
                   {"vocab_size", 256},
                   {"hidden_size", 8},
                   {"num_hidden_layers", 1},
                   {"num_attention_heads", 1},
                   {"max_position_embeddings", 64}}}}},
               {"data", {{"tokenizer", "bytes"}, {"sequence_length", 32}}},
               {"training", training},
               {"output_dir", "out"}};
  file["data"].update(data);
  return parse_config(file.dump(), "labels test");
}

HeadChoice head_of(const Config& config) {
  return described_model(config.model, head_choice(config))->head;
}

// The config with the labels of a file with these lines.
Config labelled(const TempFolder& folder, const std::string& name, const std::string& lines) {
  return with_labels_of_data(config_of("sequence-classification", {{"train", folder.write(name, lines)}}));
}

RowExamples encode(const Config& config, const json& columns, bool is_labelled = true) {
  return make_task(config, head_of(config), load_tokenizer("bytes"))->encode({columns, "a.jsonl:3"}, is_labelled);
}

}  // namespace

TEST_CASE("labels: a number that is not among labels that are numbers is none of them") {
  const TempFolder folder;
  const Config config = labelled(folder, "a.csv", "text,label\nx,2\ny,3\nz,4\n");
  const LabelIds ids(config, head_of(config));
  CHECK(ids.id_of(3, {}, "label") == 1);
  CHECK_THROWS_WITH(ids.id_of(1, {}, "label"), Contains("none of the model's 3 labels (2, 3, 4)"));
  const Config words = labelled(folder, "words.csv", "text,label\nx,bad\ny,good\n");
  CHECK(LabelIds(words, head_of(words)).id_of(1, {}, "label") == 1);
}

TEST_CASE("labels: a blank label is none, and lists name labels, each once") {
  const TempFolder folder;
  CHECK_THROWS_WITH(labelled(folder, "a.csv", "text,label\nx,1\ny,\n"), Contains("a.csv:3") && Contains("blank"));
  CHECK_THROWS_WITH(labelled(folder, "a.jsonl", "{\"text\": \"x\", \"label\": [0.5, 1.5]}\n"),
                    Contains("a.jsonl:1") && Contains("num_labels"));
  const Config config = labelled(folder, "b.jsonl", "{\"text\": \"x\", \"label\": [\"a\", \"b\"]}\n");
  CHECK(encode(config, {{"text", "x"}, {"label", {"b"}}}).examples[0].targets == std::vector<float>{0, 1});
  CHECK_THROWS_WITH(encode(config, {{"text", "x"}, {"label", {"b", "b"}}}), Contains("\"b\" twice"));
}

TEST_CASE("labels: nan and inf are names, not numbers") {
  const TempFolder folder;
  const Config config = labelled(folder, "a.csv", "text,label\nx,nan\ny,eng\nz,inf\n");
  CHECK(head_of(config).names == std::vector<std::string>{"eng", "inf", "nan"});
}

TEST_CASE("labels: any number may be the target of a regression") {
  const TempFolder folder;
  const Config config = labelled(folder, "a.csv", "text,label\nx,0.5\n");
  ExampleWriter writer(make_task(config, head_of(config), load_tokenizer("bytes"))->shape());
  writer.add(encode(config, {{"text", "x"}, {"label", -100}}).examples[0]);
  writer.write(folder.path() / "set.bin", std::string(32, '7'), {.rows = 1});
  CHECK(ExampleSet(folder.path() / "set.bin").weight(0) == 1);
}

TEST_CASE("labels: the best model is found by a metric that evaluations have") {
  const json best = {{"load_best_model_at_end", true}, {"eval_strategy", "epoch"}, {"save_strategy", "epoch"}};
  const auto check = [&](const std::string& metric, HeadChoice::Problem problem) {
    json training = best;
    training["metric_for_best_model"] = metric;
    const Config config = config_of("sequence-classification", {{"train", "a.csv"}, {"validation", "a.csv"}}, training);
    HeadChoice head = head_of(config);
    head.problem = problem;
    check_best_metric(config, head);
  };
  using Problem = HeadChoice::Problem;
  CHECK_NOTHROW(check("accuracy", Problem::single_label));
  CHECK_NOTHROW(check("mse", Problem::regression));
  CHECK_NOTHROW(check("loss", Problem::regression));
  CHECK_THROWS_WITH(check("accuracy", Problem::regression),
                    Contains("/training/metric_for_best_model") && Contains("\"pearson\""));
  CHECK_THROWS_AS(check("matthews_correlation", Problem::multi_label), ConfigError);

  const auto answers = [&](const std::string& metric, bool may_lack_one) {
    json training = best;
    training["metric_for_best_model"] = metric;
    config_of("question-answering",
              {{"train", "a.json"}, {"validation", "a.json"}, {"version_2_with_negative", may_lack_one}}, training);
  };
  CHECK_NOTHROW(answers("exact_match", false));
  CHECK_NOTHROW(answers("exact", true));
  CHECK_THROWS_WITH(answers("exact", false), Contains("\"exact_match\""));
  CHECK_THROWS_WITH(answers("exact_match", true), Contains("\"HasAns_f1\""));
}

TEST_CASE("labels: a row that predicts nothing is left out of training, but not of predictions") {
  Config config = config_of("token-classification", {{"train", "a.jsonl"}});
  config.model.config["num_labels"] = 2;
  const json row = {{"tokens", {""}}, {"label", {0}}};
  CHECK(encode(config, row).examples.empty());
}

TEST_CASE("labels: white space before a question is not part of it") {
  const Config config = config_of("question-answering", {{"train", "a.json"}});
  const auto ids = [&](const std::string& question) {
    return encode(config,
                  {{"question", question},
                   {"context", "a b"},
                   {"answers", {{"text", json::array()}, {"answer_start", json::array()}}}},
                  false)
        .examples.at(0)
        .ids;
  };
  CHECK(ids("\t  what") == ids("what"));
}

}  // namespace shardline::labels_test
