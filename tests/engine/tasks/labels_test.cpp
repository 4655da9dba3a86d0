#include "engine/tasks/labels.h"

#include <array>

#include "core/error.h"
#include "engine/config/config.h"
#include "engine/config/rules/known_data.h"
#include "engine/config/rules/model_rules.h"
#include "engine/config/rules/saving_rules.h"
#include "engine/data/examples/example_set.h"
#include "engine/data/source/arrow_rows.h"
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

// Returns the config with the labels of a file with these lines.
Config labelled(const TempFolder& folder, const std::string& name, const std::string& lines) {
  return with_labels_of_data(config_of("sequence-classification", {{"train", folder.write(name, lines)}}));
}

// The same for training that starts from a model directory whose config.json has these keys, too.
Config labelled_from(const TempFolder& folder, const json& directory, const std::string& lines) {
  Config config = config_of("sequence-classification", {{"train", folder.write("rows.jsonl", lines)}});
  json file = config.model.config;
  file.update(directory);
  folder.write("model/config.json", file.dump());
  config.model.path = (folder.path() / "model").string();
  config.model.config = json::object();
  return with_labels_of_data(config);
}

RowExamples encode(const Config& config, const json& columns, bool is_labelled = true) {
  return make_task(config, head_of(config), load_tokenizer("bytes"))->encode({columns, "a.jsonl:3"}, is_labelled);
}

}  // namespace

TEST_CASE("labels: a number that is not among the numeric labels is refused") {
  const TempFolder folder;
  const Config config = labelled(folder, "a.csv", "text,label\nx,2\ny,3\nz,4\n");
  const LabelIds ids(config, head_of(config));
  CHECK(ids.id_of(3, {}, "label") == 1);
  CHECK_THROWS_WITH(ids.id_of(1, {}, "label"), Contains("not one of the model's 3 labels (2, 3, 4)"));
  const Config words = labelled(folder, "words.csv", "text,label\nx,bad\ny,good\n");
  CHECK(LabelIds(words, head_of(words)).id_of(1, {}, "label") == 1);
}

TEST_CASE("labels: the names that the data's files state are the model's, in their order") {
  if (!why_no_arrow().empty()) return;
  const std::string file = SHARDLINE_SOURCE_DIR "/tests/engine/data/source/files/features.parquet";
  const std::vector<std::string> names = {"positive", "negative", "mixed"};  // the last one does not occur in any row
  const json columns = {{"train", file}, {"text_column", "sentence"}};
  const Config config = with_labels_of_data(config_of("sequence-classification", columns));
  CHECK(head_of(config).names == names);
  json tags = columns;
  tags["label_column"] = "tags";
  CHECK(head_of(with_labels_of_data(config_of("token-classification", tags))).names ==
        std::vector<std::string>{"O", "B-X"});

  // A model whose labels have the same names in a different order.
  Config named = config_of("sequence-classification", columns);
  named.model.config["id2label"] = {{"0", "mixed"}, {"1", "positive"}, {"2", "negative"}};
  const auto stated = std::make_shared<const LabelNames>(LabelNames{{"label", names}});
  const LabelIds ids(named, head_of(named));
  CHECK(ids.id_of(0, {.label_names = stated}, "label") == 1);
  CHECK(ids.id_of(0, {.label_names = stated}, "other") == 0);
  CHECK(ids.id_of(0, {}, "label") == 0);

  // A model directory with as many labels, which have no names yet.
  const TempFolder folder;
  Config from = config_of("sequence-classification", columns);
  json keys = from.model.config;
  keys.update({{"num_labels", 3}, {"architectures", {"BertForSequenceClassification"}}});
  folder.write("model/config.json", keys.dump());
  from.model.path = (folder.path() / "model").string();
  from.model.config = json::object();
  CHECK(head_of(with_labels_of_data(from)).names == names);
}

TEST_CASE("labels: a blank label counts as missing, and a list names each label once") {
  const TempFolder folder;
  CHECK_THROWS_WITH(labelled(folder, "a.csv", "text,label\nx,1\ny,\n"), Contains("a.csv:3") && Contains("blank"));
  CHECK_THROWS_WITH(labelled(folder, "a.jsonl", "{\"text\": \"x\", \"label\": [0.5, 1.5]}\n"),
                    Contains("a.jsonl:1") && Contains("num_labels"));
  const Config config = labelled(folder, "b.jsonl", "{\"text\": \"x\", \"label\": [\"a\", \"b\"]}\n");
  CHECK(encode(config, {{"text", "x"}, {"label", {"b"}}}).examples[0].targets == std::vector<float>{0, 1});
  CHECK_THROWS_WITH(encode(config, {{"text", "x"}, {"label", {"b", "b"}}}), Contains("\"b\" twice"));
}

TEST_CASE("labels: multi-hot vectors are floats, of the same size in all rows") {
  const TempFolder folder;
  const Config config = labelled(
      folder, "a.jsonl", "{\"text\": \"x\", \"label\": [0.0, 1.0, 1.0]}\n{\"text\": \"y\", \"label\": [0, 0.0, 0]}\n");
  const HeadChoice head = head_of(config);
  CHECK(head.labels == 3);
  CHECK(head.problem == HeadChoice::Problem::multi_label);
  const auto targets = [&](const json& label) {
    return encode(config, {{"text", "x"}, {"label", label}}).examples[0].targets;
  };
  CHECK(targets({0.0, 1.0, 1.0}) == std::vector<float>{0, 1, 1});
  CHECK(targets({"LABEL_1"}) == std::vector<float>{0, 1, 0});
  CHECK_THROWS_WITH(targets({0.0, 1.0}), Contains("a.jsonl:3: 'label' has 2 numbers, but the model predicts 3"));
  CHECK_THROWS_WITH(targets({0, 0, 1}), Contains("the label 0 twice") && Contains("[0.0, 1.0]"));
  CHECK_THROWS_WITH(
      labelled(folder, "b.jsonl", "{\"text\": \"x\", \"label\": [0.0, 1.0]}\n{\"text\": \"y\", \"label\": [1.0]}\n"),
      Contains("b.jsonl:2") && Contains("vectors of 2 numbers"));
  CHECK_THROWS_WITH(
      labelled(folder, "c.jsonl", "{\"text\": \"x\", \"label\": [\"a\"]}\n{\"text\": \"y\", \"label\": [1.0]}\n"),
      Contains("c.jsonl:2") && Contains("the rows before have labels"));
  CHECK_THROWS_WITH(
      labelled(folder, "d.jsonl", "{\"text\": \"x\", \"label\": [0, 1]}\n{\"text\": \"y\", \"label\": [1, 0]}\n"),
      Contains("a list of 2 integers 0 and 1 in every row") && Contains("[0.0, 1.0]"));
  const Config two = labelled(folder, "f.jsonl",
                              "{\"text\": \"x\", \"label\": [0.0, 1.0]}\n{\"text\": \"y\", \"label\": [1.0, 0.0]}\n");
  const json both = {{"text", "x"},
                     {"label", {1, 0}}};  // from a file whose vectors are integers, such as a validation set
  CHECK_THROWS_WITH(encode(two, both),
                    Contains("a.jsonl:3: 'label' is [1,0], which may mean both labels") && Contains("[0.0, 1.0]"));
  CHECK(encode(two, {{"text", "x"}, {"label", {"LABEL_0", "LABEL_1"}}}).examples[0].targets ==
        std::vector<float>{1, 1});
  const Config lists =
      labelled(folder, "e.jsonl", "{\"text\": \"x\", \"label\": [0, 1]}\n{\"text\": \"y\", \"label\": [1]}\n");
  CHECK(head_of(lists).names == std::vector<std::string>{"0", "1"});
}

TEST_CASE("labels: default names follow their numbers, not their alphabetical order") {
  const TempFolder folder;
  std::string lines;
  json id2label;
  for (int id = 0; id < 11; ++id) {
    lines += cat("{\"text\": \"x\", \"label\": \"LABEL_", id, "\"}\n");
    id2label[std::to_string(id)] = cat("LABEL_", id);
  }
  const auto check = [&](const Config& config) {
    CHECK(head_of(config).labels == 11);
    CHECK(LabelIds(config, head_of(config)).id_of("LABEL_7", {}, "label") == 7);
    CHECK(LabelIds(config, head_of(config)).id_of("LABEL_10", {}, "label") == 10);
  };
  check(labelled_from(folder, {{"architectures", {"BertForSequenceClassification"}}, {"id2label", id2label}}, lines));
  check(labelled_from(folder, {{"architectures", {"BertModel"}}}, lines));
  const json permuted = {{"0", "LABEL_1"}, {"1", "LABEL_0"}};
  const Config own =
      labelled_from(folder, {{"architectures", {"BertForSequenceClassification"}}, {"id2label", permuted}},
                    "{\"text\": \"x\", \"label\": \"LABEL_0\"}\n{\"text\": \"x\", \"label\": \"LABEL_1\"}\n");
  CHECK(LabelIds(own, head_of(own)).id_of("LABEL_0", {}, "label") == 1);
}

TEST_CASE("labels: a trained head keeps its number of labels") {
  const TempFolder folder;
  const json three = {{"0", "LABEL_0"}, {"1", "LABEL_1"}, {"2", "LABEL_2"}};
  const json trained = {{"architectures", {"BertForSequenceClassification"}}, {"id2label", three}};
  const auto rows = [](const std::vector<std::string>& labels) {
    std::string lines;
    for (const auto& label : labels) lines += cat("{\"text\": \"x\", \"label\": ", label, "}\n");
    return lines;
  };
  const Config some = labelled_from(folder, trained, rows({"0", "2"}));
  CHECK(head_of(some).labels == 3);
  CHECK(LabelIds(some, head_of(some)).id_of(2, {}, "label") == 2);
  const Config named = labelled_from(folder, trained, rows({"\"b\"", "\"a\"", "\"c\""}));
  CHECK(head_of(named).names == std::vector<std::string>{"a", "b", "c"});
  const Config other = labelled_from(folder, trained, rows({"\"a\"", "\"b\""}));
  CHECK_THROWS_WITH(LabelIds(other, head_of(other)).id_of("a", {}, "label"),
                    Contains("not one of the model's 3 labels (LABEL_0, LABEL_1, LABEL_2)"));
  // Two labels are the default, which transformers does not write.
  const Config two = labelled_from(folder, {{"architectures", {"BertForSequenceClassification"}}}, rows({"1"}));
  CHECK(head_of(two).labels == 2);
  const Config number = labelled_from(folder, {{"num_labels", 4}}, rows({"1", "3"}));
  CHECK(head_of(number).labels == 4);
  const Config sets = labelled_from(folder, trained, rows({"[0, 2]", "[1]"}));
  CHECK(head_of(sets).problem == HeadChoice::Problem::multi_label);

  const json score = {{"architectures", {"BertForSequenceClassification"}},
                      {"id2label", {{"0", "LABEL_0"}}},
                      {"problem_type", "regression"}};
  const Config scores = labelled_from(folder, score, rows({"0", "5"}));
  CHECK(head_of(scores).problem == HeadChoice::Problem::regression);
  CHECK(head_of(scores).labels == 1);
  CHECK(encode(scores, {{"text", "x"}, {"label", 5}}).examples[0].targets == std::vector<float>{5});

  // The number in a pretrained model's config.json says nothing about a head that it does not have.
  const Config pretrained =
      labelled_from(folder, {{"architectures", {"BertForMaskedLM"}}, {"id2label", three}}, rows({"\"x\"", "\"y\""}));
  CHECK(head_of(pretrained).names == std::vector<std::string>{"x", "y"});
}

TEST_CASE("labels: without data, the labels of the model are used") {
  Config config = config_of("sequence-classification", {{"train", "no such file"}});
  config.data.train.clear();
  CHECK_FALSE(leaves_labels_open(config));
  CHECK(with_labels_of_data(config) == config);
  config.data.task_name = DataName::mnli;  // its labels are known
  CHECK(head_of(with_labels_of_data(config)).names == known_data(DataName::mnli).labels);
}

TEST_CASE("labels: tags that are numbers need names, unless their number alone is given") {
  const TempFolder folder;
  const json data = {
      {"train", folder.write("tags.jsonl", "{\"tokens\": [\"a\", \"b\", \"c\"], \"ner_tags\": [0, 10, 2]}\n")},
      {"label_column", "ner_tags"}};
  Config config = config_of("token-classification", data);
  CHECK_THAT(message_of<ConfigError>([&] { with_labels_of_data(config); }),
             Contains("/model/config/id2label: the tags in 'ner_tags' are numbers (0 to 10)") &&
                 Contains("num_labels instead"));
  config.model.config["num_labels"] = 11;
  CHECK(head_of(with_labels_of_data(config)).names.at(10) == "LABEL_10");
  const json named = {{"0", "O"}, {"1", "B-X"}, {"2", "I-X"}};
  config.model.config.erase("num_labels");
  config.model.config["id2label"] = named;
  CHECK(with_labels_of_data(config).model.config["id2label"] == named);
}

TEST_CASE("labels: the run prints what a head predicts") {
  const TempFolder folder;
  const auto told = [&](const std::string& values) {
    const Config config = labelled(folder, "told.jsonl", values);
    return labels_text(head_of(config));
  };
  CHECK(told("{\"text\": \"x\", \"label\": 1}\n{\"text\": \"x\", \"label\": 0}\n") == "2 classes: 0, 1");
  CHECK(told("{\"text\": \"x\", \"label\": 1}\n{\"text\": \"x\", \"label\": 0.5}\n") == "a number (regression)");
  CHECK(told("{\"text\": \"x\", \"label\": [\"b\"]}\n{\"text\": \"x\", \"label\": [\"a\", \"b\"]}\n") ==
        "2 labels, of which a text may have several: a, b");
  std::string many;
  for (int i = 0; i < 13; ++i) many += cat("{\"text\": \"x\", \"label\": ", i, "}\n");
  CHECK(told(many) == "13 classes: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, ...");
  CHECK(labels_text({}).empty());
}

TEST_CASE("labels: nan and inf are names, not numbers") {
  const TempFolder folder;
  const Config config = labelled(folder, "a.csv", "text,label\nx,nan\ny,eng\nz,inf\n");
  CHECK(head_of(config).names == std::vector<std::string>{"eng", "inf", "nan"});
}

TEST_CASE("labels: rows whose labels fit no single kind of task are refused, and the error names them") {
  const TempFolder folder;
  const std::string x = "{\"text\": \"a\", \"label\": \"x\"}\n", y = "{\"text\": \"a\", \"label\": \"y\"}\n",
                    number = "{\"text\": \"a\", \"label\": 1.5}\n", one = "{\"text\": \"a\", \"label\": 1}\n";
  const auto message = [&](const std::string& lines) {
    return message_of<DataError>([&] { labelled(folder, "a.jsonl", lines); });
  };
  CHECK_THAT(message(x + x), Contains("a.jsonl: the label of all rows is the same (") &&
                                 Contains("a.jsonl:1: 'label' is \"x\"), but a classification needs at least two"));
  for (const auto& [lines, fraction, word] :
       std::vector<std::array<std::string, 3>>{{x + number + y, "2", "1"}, {number + x, "1", "2"}})
    CHECK_THAT(message(lines),
               Contains(cat("a.jsonl:", fraction,
                            ": 'label' is 1.5, a number with a fraction, which makes the task a "
                            "regression, but ")) &&
                   Contains(cat("a.jsonl:", word, ": 'label' is \"x\"; correct the label of one of these rows")));
  CHECK_NOTHROW(labelled(folder, "a.jsonl", x + y));
  CHECK_NOTHROW(labelled(folder, "a.jsonl", number + one));
  CHECK_NOTHROW(labelled(folder, "a.jsonl", one + one));
  CHECK_NOTHROW(labelled_from(folder, {{"num_labels", 1}, {"architectures", {"BertForSequenceClassification"}}}, x));

  Config config = config_of("sequence-classification", {{"train", "a.jsonl"}});
  config.model.config["num_labels"] = 1;
  CHECK_THAT(
      message_of<DataError>([&] {
        encode(config, {{"text", "a"}, {"label", "x"}});
      }),
      Contains("a.jsonl:3: 'label' must be a number; got \"x\"; the model has num_labels 1, which means regression"));
}

TEST_CASE("labels: any number may be the target of a regression") {
  const TempFolder folder;
  const Config config = labelled(folder, "a.csv", "text,label\nx,0.5\n");
  ExampleWriter writer(make_task(config, head_of(config), load_tokenizer("bytes"))->shape());
  writer.add(encode(config, {{"text", "x"}, {"label", -100}}).examples[0]);
  writer.write(folder.path() / "set.bin", std::string(32, '7'), {.rows = 1});
  CHECK(ExampleSet(folder.path() / "set.bin").weight(0) == 1);
}

TEST_CASE("labels: the numbers of a program's regression may look like classes or lists") {
  const TempFolder folder;
  for (const char* label : {"3", "[1.5]"}) {
    const std::string rows = folder.write("rows.jsonl", cat("{\"text\": \"a\", \"label\": ", label, "}\n"));
    Config config = config_of("sequence-classification", {{"train", rows}});
    config.model.path = "model.pt2";
    config.model.config = {{"problem_type", "regression"}};
    CHECK(with_labels_of_data(config).model.config == config.model.config);
  }
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
