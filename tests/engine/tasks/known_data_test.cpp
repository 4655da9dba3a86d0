#include "engine/config/rules/known_data.h"

#include <ATen/ops/tensor.h>

#include "core/error.h"
#include "engine/config/config.h"
#include "engine/config/rules/model_rules.h"
#include "engine/config/rules/saving_rules.h"
#include "engine/data/examples/prepare_examples.h"
#include "engine/tasks/labels.h"
#include "engine/tasks/task.h"
#include "engine/tasks/task_files.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::known_data_test {
namespace {

using Catch::Contains;
using nlohmann::json;

Config config_of(const std::string& name, const json& data) {
  json file = {{"task", "sequence-classification"},
               {"model",
                {{"config",
                  {{"model_type", "bert"},
                   {"vocab_size", 256},
                   {"hidden_size", 8},
                   {"num_hidden_layers", 1},
                   {"num_attention_heads", 1},
                   {"max_position_embeddings", 64}}}}},
               {"data", {{"tokenizer", "bytes"}, {"sequence_length", 64}, {"task_name", name}}},
               {"output_dir", "out"}};
  file["data"].update(data);
  return with_labels_of_data(parse_config(file.dump(), "known data test"));
}

std::unique_ptr<LabelledTask> task_of(const Config& config) {
  return make_task(config, described_model(config.model, head_choice(config))->head, load_tokenizer("bytes"));
}

struct Read {
  std::vector<std::string> texts;  // pairs are joined
  std::vector<float> targets;
  int64_t shortened = 0;
  bool operator==(const Read&) const = default;
};

Read read(const Config& config, DataPart part = DataPart::train) {
  const auto task = task_of(config);
  Read result;
  for_each_row(task_files(config, part, paths_of(config, part)), [&](const DataRow& row, int64_t) {
    const RowExamples made = task->encode(row, part != DataPart::test);
    result.shortened += made.shortened;
    for (const Example& example : made.examples) {
      result.texts.emplace_back(example.ids.begin(), example.ids.end());
      result.targets.push_back(example.targets[0]);
    }
  });
  return result;
}

struct Sample {
  std::string name, tsv, jsonl;
  Read expected;
};

// Rows as they appear in GLUE's files and on the hub.
const std::vector<Sample> kSamples = {
    {"cola",
     "gj04\t1\t\tGood.\nc-05\t0\t*\tBad \"one.\n",
     "{\"sentence\": \"Good.\", \"label\": 1}\n{\"sentence\": \"Bad \\\"one.\", \"label\": 0}\n",
     {{"Good.", "Bad \"one."}, {1, 0}}},
    {"mnli",
     "index\tgenre\tsentence1\tsentence2\tlabel1\tgold_label\n0\tx\ta\tb\tneutral\tentailment\n"
     "1\tx\tc\td\tneutral\tcontradiction\n",
     "{\"premise\": \"a\", \"hypothesis\": \"b\", \"label\": 0}\n{\"premise\": \"c\", \"hypothesis\": \"d\", "
     "\"label\": "
     "2}\n",
     {{"ab", "cd"}, {0, 2}}},
    {"mrpc",
     "\xEF\xBB\xBFQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\ta\tb\n0\t7\t8\tc\td\n",
     "{\"sentence1\": \"a\", \"sentence2\": \"b\", \"label\": 1}\n{\"sentence1\": \"c\", \"sentence2\": \"d\", "
     "\"label\": 0}\n",
     {{"ab", "cd"}, {1, 0}}},
    {"qnli",
     "index\tquestion\tsentence\tlabel\n0\ta\tb\tentailment\n1\tc\td\tnot_entailment\n",
     "{\"question\": \"a\", \"sentence\": \"b\", \"label\": 0}\n{\"question\": \"c\", \"sentence\": \"d\", \"label\": "
     "1}\n",
     {{"ab", "cd"}, {0, 1}}},
    {"qqp",
     "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n0\t1\t2\ta\tb\t0\n1\t3\t4\tc\td\t1\n"
     "2\t5\t6\tcut\n3\t7\t8\te\tf\t\n",
     "{\"question1\": \"a\", \"question2\": \"b\", \"label\": 0}\n{\"question1\": \"c\", \"question2\": \"d\", "
     "\"label\": 1}\n",
     {{"ab", "cd"}, {0, 1}}},
    {"rte",
     "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tnot_entailment\n1\tc\td\tentailment\n",
     "{\"sentence1\": \"a\", \"sentence2\": \"b\", \"label\": 1}\n{\"sentence1\": \"c\", \"sentence2\": \"d\", "
     "\"label\": 0}\n",
     {{"ab", "cd"}, {1, 0}}},
    {"sst2",
     "sentence\tlabel\na\t0\nb\t1\n",
     "{\"sentence\": \"a\", \"label\": 0}\n{\"sentence\": \"b\", \"label\": 1}\n",
     {{"a", "b"}, {0, 1}}},
    {"stsb",
     "index\tsource1\tsentence1\tsentence2\tscore\n0\tx\ta\tb\t5.000\n1\tx\tc\td\t0.5\n",
     "{\"sentence1\": \"a\", \"sentence2\": \"b\", \"label\": 5.0}\n{\"sentence1\": \"c\", \"sentence2\": \"d\", "
     "\"label\": 0.5}\n",
     {{"ab", "cd"}, {5, 0.5}}},
    {"wnli",
     "index\tsentence1\tsentence2\tlabel\n0\ta\tb\t1\n1\tc\td\t0\n",
     "{\"sentence1\": \"a\", \"sentence2\": \"b\", \"label\": 1}\n{\"sentence1\": \"c\", \"sentence2\": \"d\", "
     "\"label\": 0}\n",
     {{"ab", "cd"}, {1, 0}}},
};

}  // namespace

TEST_CASE("known data: the files of GLUE and exports of the hub give the same examples") {
  for (const Sample& sample : kSamples) {
    CAPTURE(sample.name);
    const TempFolder folder;
    folder.write("glue/train.tsv", sample.tsv);
    folder.write("hub/train.jsonl", sample.jsonl);
    const Config glue = config_of(sample.name, {{"train", (folder.path() / "glue").string()}});
    const Config hub = config_of(sample.name, {{"train", (folder.path() / "hub/train.jsonl").string()}});
    Read of_glue = read(glue);
    CHECK(of_glue.shortened == (sample.name == "qqp" ? 2 : 0));  // rows that are cut off, as some are in these files
    of_glue.shortened = 0;
    CHECK(of_glue == sample.expected);
    CHECK(read(hub) == sample.expected);
    CHECK(glue.model.config == hub.model.config);
    if (sample.name != "qqp") continue;
    const Config predicted = config_of("qqp", {{"train", "x"}, {"test", (folder.path() / "glue/train.tsv").string()}});
    CHECK_THAT(message_of<DataError>([&] { read(predicted, DataPart::test); }),
               Contains("train.tsv:4: has no 'question2'"));
  }
}

TEST_CASE("known data: labels have the names and the order of the hub") {
  const Config mnli = config_of("mnli", {{"train", "nowhere.tsv"}});
  CHECK(mnli.model.config.at("id2label") == json{{"0", "entailment"}, {"1", "neutral"}, {"2", "contradiction"}});
  const Config stsb = config_of("stsb", {{"train", "nowhere.tsv"}});
  CHECK(stsb.model.config.at("num_labels") == 1);
  CHECK(stsb.model.config.at("problem_type") == "regression");
}

TEST_CASE("known data: a model with only a number of labels gets the names of the hub") {
  const TempFolder folder;
  Config config = config_of("rte", {{"train", folder.write("a.tsv", kSamples[5].tsv)}});
  config.model.config = {{"model_type", "bert"}, {"vocab_size", 256}, {"num_labels", 2}};
  config = with_labels_of_data(config);
  CHECK(config.model.config.at("id2label") == json{{"0", "entailment"}, {"1", "not_entailment"}});
  CHECK(read(config).targets == kSamples[5].expected.targets);
  config.model.config = {{"model_type", "bert"}, {"vocab_size", 256}, {"num_labels", 3}};
  CHECK_FALSE(with_labels_of_data(config).model.config.contains("id2label"));
}

TEST_CASE("known data: a model with the labels in another order gets those with the same names") {
  const TempFolder folder;
  Config config = config_of("rte", {{"train", folder.write("a.jsonl", kSamples[5].jsonl)}});
  config.model.config["id2label"] = {{"0", "not_entailment"}, {"1", "entailment"}};
  CHECK(read(config).targets == std::vector<float>{0, 1});
  config.model.config["id2label"] = {{"0", "no"}, {"1", "yes"}};
  CHECK_THAT(message_of<DataError>([&] { read(config); }),
             Contains("a.jsonl:1: the label 1 in 'label' is not one of the model's 2 labels (no, yes)"));
}

TEST_CASE("known data: a model without label names uses the numbers of the data set, as run_glue.py does") {
  const TempFolder folder;
  Config config = config_of("rte", {{"train", folder.write("a.tsv", kSamples[5].tsv)}});
  config.model.config.erase("label2id");
  config.model.config["id2label"] = {{"0", "LABEL_0"}, {"1", "LABEL_1"}};
  CHECK(read(config).targets == std::vector<float>{1, 0});
  config.data.train = {folder.write("a.jsonl", kSamples[5].jsonl)};
  CHECK(read(config).targets == std::vector<float>{1, 0});
  config.model.config["id2label"]["2"] = "LABEL_2";
  CHECK_THAT(message_of<DataError>([&] { read(config); }), Contains("is not one of the model's 3 labels"));
}

TEST_CASE("known data: sets with the same columns share no examples, since their labels have other numbers") {
  const auto settings_of = [](const std::string& name) {
    Config config = config_of(name, {{"train", "nowhere.tsv"}});
    config.model.config["id2label"] = {{"0", "entailment"}, {"1", "not_entailment"}};
    return task_of(config)->settings();
  };
  CHECK(settings_of("rte") == settings_of("rte"));
  CHECK(settings_of("rte") != settings_of("wnli"));
}

TEST_CASE("known data: amazon_polarity's files name no columns and count labels from 1") {
  const TempFolder folder;
  folder.write("train.csv", "\"1\",\"Bad\",\"a, b\"\n\"2\",\"Good\",\"c \"\"d\"\"\"\n");
  folder.write("test.csv", "\"2\",\"x\",\"y\"\n");
  folder.write("hub.csv", "label,title,content\n0,x,y\n1,x,z\n");
  const std::string all = folder.path().string();
  const Config config = config_of("amazon_polarity", {{"train", all}, {"validation", all}});
  CHECK(read(config) == Read{{"a, b", "c \"d\""}, {0, 1}});
  CHECK(read(config, DataPart::validation) == Read{{"y"}, {1}});
  CHECK(read(config_of("amazon_polarity", {{"train", all + "/hub.csv"}})) == Read{{"y", "z"}, {0, 1}});
  const std::string rows = folder.write("hub.jsonl", "{\"content\": \"y\", \"label\": 1}\n");
  CHECK(read(config_of("amazon_polarity", {{"train", rows}})) == Read{{"y"}, {1}});
}

TEST_CASE("known data: a model's labels may be in another order and in capitals") {
  const TempFolder folder;
  json file = json::parse(R"({"task": "sequence-classification", "model": {"config": {"model_type": "bert",
    "vocab_size": 256, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}}, "data": {"tokenizer": "bytes",
    "sequence_length": 64, "task_name": "mnli"}, "output_dir": "out"})");
  file["model"]["config"]["id2label"] = {{"0", "CONTRADICTION"}, {"1", "Neutral"}, {"2", "ENTAILMENT"}};
  for (const auto& train : {folder.write("own.tsv", kSamples[1].tsv), folder.write("hub.jsonl", kSamples[1].jsonl)}) {
    file["data"]["train"] = train;
    const Config config = with_labels_of_data(parse_config(file.dump(), "known data test"));
    CHECK(read(config) == Read{{"ab", "cd"}, {2, 0}});
  }
}

TEST_CASE("known data: a folder stands for the file of a part") {
  const TempFolder folder;
  for (const char* name : {"train", "dev_matched", "dev_mismatched", "test_matched", "test_mismatched"})
    folder.write(std::string(name) + ".tsv", cat("sentence1\tsentence2\tgold_label\n", name, "\tx\tneutral\n"));
  const std::string all = folder.path().string();
  const Config config = config_of("mnli", {{"train", all}, {"validation", all}, {"test", all}});
  CHECK(read(config).texts == std::vector<std::string>{"trainx"});
  CHECK(read(config, DataPart::validation).texts == std::vector<std::string>{"dev_matchedx"});
  CHECK(read(config, DataPart::validation_mismatched).texts == std::vector<std::string>{"dev_mismatchedx"});
  CHECK(read(config, DataPart::test).texts == std::vector<std::string>{"test_matchedx"});
  const Config one = config_of("mnli", {{"train", all}, {"validation", all + "/dev_matched.tsv"}});
  CHECK(paths_of(one, DataPart::validation_mismatched).empty());
  const auto names_mismatched = [](const Config& named) {
    return std::ranges::count(metric_names(named), "accuracy_mm") == 1;
  };
  CHECK(names_mismatched(config));
  CHECK(names_mismatched(config_of("mnli", {{"train", all}, {"validation", "elsewhere/MNLI"}})));
  CHECK_FALSE(names_mismatched(one));
  for (const char* name : {"saved/state.json", "saved/dataset_info.json"}) folder.write(name, "{}");
  CHECK_FALSE(names_mismatched(config_of("mnli", {{"train", all}, {"validation", all + "/saved"}})));
  folder.write("train.jsonl", "{}");
  CHECK_THAT(message_of<DataError>([&] { read(config); }), Contains("has train.jsonl and train.tsv"));
  CHECK_THAT(message_of<DataError>([&] {
               read(config_of("rte", {{"train", "x"}, {"validation", all}}), DataPart::validation);
             }),
             Contains("has no file dev or validation"));
}

TEST_CASE("known data: a file of another data set is recognised by the columns that it lacks") {
  const TempFolder folder;
  const std::string path = folder.write("a.jsonl", "{\"sentence\": \"x\", \"label\": 1}\n");
  const auto message = [&](DataPart part) {
    return message_of<MissingColumn>([&] { read(config_of("mrpc", {{"train", path}, {"test", path}}), part); });
  };
  for (const DataPart part : {DataPart::train, DataPart::test})
    CHECK_THAT(
        message(part),
        Contains("a.jsonl:1: has no 'sentence1'") &&
            Contains(", which data.task_name \"mrpc\" needs, only {label, sentence}; name the files of this data "
                     "set, or for others leave out data.task_name"));
}

TEST_CASE("known data: MRPC's own files are tables, although their names end with .txt") {
  const TempFolder folder;
  folder.write("msr_paraphrase_train.txt", kSamples[2].tsv);
  folder.write("msr_paraphrase_test.txt", kSamples[2].tsv);
  const std::string all = folder.path().string();
  const Config config =
      config_of("mrpc", {{"train", all}, {"validation", all + "/msr_paraphrase_test.txt"}, {"test", all}});
  CHECK(read(config) == kSamples[2].expected);
  CHECK(read(config, DataPart::validation) == kSamples[2].expected);
  CHECK(read(config, DataPart::test).texts == kSamples[2].expected.texts);
}

TEST_CASE("known data: metrics equal those of GLUE") {
  for (const auto& [name, expected] :
       std::map<std::string, std::vector<std::string>>{{"cola", {"matthews_correlation"}},
                                                       {"mrpc", {"accuracy", "f1", "combined_score"}},
                                                       {"qqp", {"accuracy", "f1", "combined_score"}},
                                                       {"stsb", {"pearson", "spearmanr", "combined_score"}},
                                                       {"rte", {"accuracy"}}}) {
    CAPTURE(name);
    const TempFolder folder;
    const Config config = config_of(name, {{"train", "x.tsv"}});
    const auto task = task_of(config);
    ExampleWriter writer(task->shape());
    for (const float target : {0.F, 1.F, 1.F, 0.F}) writer.add({.ids = {1}, .targets = {target}});
    const auto path = folder.path() / "set.bin";
    writer.write(path, std::string(32, '7'), {.rows = 4});
    const Examples range{std::make_shared<const ExampleSet>(path), Selection(0, 4)};
    const at::Tensor logits = at::tensor({0.1, 0.9, 0.2, 0.3}, at::kDouble).unsqueeze(1);
    const auto metrics = task->metrics(
        {range,
         name == "stsb" ? logits : at::tensor({1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0}).view({4, 2}).to(at::kDouble),
         {}});
    std::vector<std::string> names;
    for (const auto& [metric, value] : metrics) names.push_back(metric);
    CHECK(names == expected);
    if (metrics.size() == 3) CHECK(metrics[2].second == Approx((metrics[0].second + metrics[1].second) / 2));
    for (const auto& metric : names) {
      const auto known = metric_names(config);
      CHECK(std::ranges::find(known, metric) != known.end());
    }
  }
}

}  // namespace shardline::known_data_test
