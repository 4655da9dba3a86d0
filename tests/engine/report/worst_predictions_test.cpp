#include "engine/report/worst_predictions.h"

#include <filesystem>

#include "core/files/disk_file.h"
#include "engine/run/output_dir.h"
#include "engine/tasks/task_files.h"
#include "tests/engine/observe/scratch_folder.h"

#include "tests/catch.h"

namespace shardline::worst_predictions_test {
namespace {

using nlohmann::json;

const std::vector<std::string> kNames = {"bad", "good"};

std::optional<JudgedPrediction> judge(const json& prediction, const json& row, const Config& config = {}) {
  return judged(prediction, row, config, kNames);
}

}  // namespace

TEST_CASE("A wrong label is worse if its probability is higher, a correct one if it is lower", "[report]") {
  const auto wrong = judge({{"label", "bad"}, {"score", 0.9}}, {{"text", "fine"}, {"label", "good"}});
  const auto unsure = judge({{"label", "good"}, {"score", 0.6}}, {{"text", "fine"}, {"label", "good"}});
  const auto sure = judge({{"label", "good"}, {"score", 0.99}}, {{"text", "fine"}, {"label", 1}});
  CHECK(wrong->is_wrong);
  CHECK(wrong->text == "fine");
  CHECK(wrong->expected == "good");
  CHECK(wrong->score == "0.9");
  CHECK_FALSE(sure->is_wrong);  // label 1 is "good"
  CHECK(wrong->badness > unsure->badness);
  CHECK(unsure->badness > sure->badness);
  CHECK_FALSE(judge({{"label", "bad"}, {"score", 0.9}}, {{"text", "fine"}}));
}

TEST_CASE("Numbers, lists of labels, tags and answers are compared, too", "[report]") {
  CHECK(judge({{"score", 2.5}}, {{"text", "a"}, {"label", "4.0"}})->badness == 1.5);
  CHECK_FALSE(judge({{"score", 2.5}}, {{"text", "a"}, {"label", "four"}}));
  const json sets = {{"labels", {"good", "bad"}}, {"scores", json::object()}};
  CHECK(judge(sets, {{"text", "a"}, {"label", {"bad", "good"}}})->badness == 0);
  CHECK(judge(sets, {{"text", "a"}, {"label", {"good"}}})->is_wrong);
  const auto tags = judge({{"tags", {"good", nullptr}}}, {{"tokens", {"x", "y"}}, {"label", {0, 1}}});
  CHECK(tags->badness == 2);
  CHECK(tags->text == "x y");
  Config questions;
  questions.task = "question-answering";
  const json row = {{"question", "who?"}, {"answers", {{"text", {"Ann", "Anne"}}, {"answer_start", {0, 0}}}}};
  CHECK_FALSE(judge({{"answer", "Anne"}, {"score", 0.5}}, row, questions)->is_wrong);
  CHECK(judge({{"answer", "Bob"}, {"score", 0.5}}, row, questions)->badness == 1.5);
  CHECK(judge({{"answer", "Bob"}}, row, questions)->text == "who?");
  const json none = {{"question", "who?"}, {"answers", {{"text", json::array()}}}};
  CHECK_FALSE(judge({{"answer", ""}}, none, questions)->is_wrong);
}

TEST_CASE("The worst predictions of a file are found, with the numbers of their rows", "[report]") {
  const ScratchFolder folder;
  std::string rows, predictions;
  for (int i = 0; i < 300; ++i) {
    rows += json{{"text", "text " + std::to_string(i)}, {"label", "good"}}.dump() + "\n";
    predictions += json{{"label", i % 100 == 17 ? "bad" : "good"}, {"score", 0.5 + i / 1000.0}}.dump() + "\n";
  }
  write_file(folder.path() + "/rows.jsonl", rows);
  write_file(folder.path() + "/predictions.jsonl", predictions);
  RunHistory run{.name = "run", .directory = folder.path()};
  run.config.task = "sequence-classification";
  run.config.data.test = {folder.path() + "/rows.jsonl"};
  const auto report = read_predictions(run);
  REQUIRE(report);
  CHECK(report->count == 300);
  CHECK(report->wrong == 3);
  CHECK(report->worst.size() == 20);
  CHECK(report->worst[0].row == 218);
  CHECK(report->worst[2].row == 18);
  CHECK(report->worst[3].row == 1);
  CHECK(run.notes.empty());
  const std::string record = folder.path() + "/" + kPredictedDataFile;
  write_file(record,
             json{{"files", {"rows.jsonl"}}, {"digest", digest_of_contents({{run.config.data.test[0]}})}}.dump());
  CHECK(read_predictions(run));
  write_file(folder.path() + "/others.jsonl", rows.substr(0, rows.size() / 2) + rows.substr(0, rows.size() / 2));
  write_file(
      record,
      json{{"files", {"others.jsonl"}}, {"digest", digest_of_contents({{folder.path() + "/others.jsonl"}})}}.dump());
  CHECK_FALSE(read_predictions(run));
  CHECK_THAT(run.notes.at(0), Catch::Matchers::EndsWith("was made from data other than the run's: others.jsonl"));
  run.notes.clear();
  std::filesystem::remove(record);
  write_file(folder.path() + "/fewer.jsonl", rows.substr(0, rows.rfind('\n', rows.size() - 2) + 1));
  run.config.data.test = {folder.path() + "/fewer.jsonl"};
  CHECK_FALSE(read_predictions(run));
  CHECK(run.notes.at(0).find("belong to other data") != std::string::npos);
  run.notes.clear();
  run.config.data.test = {folder.path() + "/none.jsonl"};
  CHECK_FALSE(read_predictions(run));
  CHECK(run.notes.size() == 1);
  run.directory += "/none";
  CHECK_FALSE(read_predictions(run));
  CHECK(run.notes.size() == 1);
}

}  // namespace shardline::worst_predictions_test
