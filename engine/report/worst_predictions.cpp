#include "engine/report/worst_predictions.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>

#include "core/error.h"
#include "core/files/json_data.h"
#include "engine/config/rules/known_data.h"
#include "engine/data/examples/prepare_examples.h"
#include "engine/run/output_dir.h"
#include "engine/tasks/labels.h"
#include "engine/tasks/task_files.h"

namespace shardline {
namespace {

using nlohmann::json;

constexpr size_t kMostWorst = 20, kLongestText = 400, kMostLabels = 100'000;

std::string shortened(const std::string& text) {
  if (text.size() <= kLongestText) return text;
  size_t end = kLongestText;
  while (end > 0 && (text[end] & 0xc0) == 0x80) --end;  // not within a character
  return text.substr(0, end) + " ...";
}

std::string text_of_value(const json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::vector<std::string> names_of_labels(const Config& config) {
  std::vector<std::string> names;
  const json labels = config.model.config.value("id2label", json::object());
  for (size_t id = 0; labels.is_object() && id < std::min(labels.size(), kMostLabels); ++id)
    names.push_back(text_of_value(labels.value(std::to_string(id), json(std::to_string(id)))));
  return names;
}

// The first of these columns that the row has.
const json* column_among(const json& row, const std::vector<std::string>& columns) {
  for (const auto& column : columns)
    if (const auto found = row.find(column); found != row.end() && !found->is_null()) return &*found;
  return nullptr;
}

std::string name_of_label(const json& value, const std::vector<std::string>& names) {
  const std::string text = label_text(value);
  if (std::ranges::find(names, text) != names.end()) return text;
  const bool is_id =
      !text.empty() && text.size() < 7 && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
  const size_t id = is_id ? std::stoul(text) : names.size();
  return id < names.size() ? names[id] : text;
}

std::vector<std::string> label_columns(const DataOptions& data) {
  if (data.task_name) return known_data(*data.task_name).label;
  return {data.label_column, "label", "labels"};
}

std::string text_of_row(const json& row, const Config& config) {
  const DataOptions& data = config.data;
  std::vector<std::string> columns = {data.text_column, data.question_column, data.tokens_column};
  if (data.task_name) columns = known_data(*data.task_name).text;
  if (config.task == "question-answering") columns = {data.question_column};
  const json* text = column_among(row, columns);
  if (!text) return "";
  std::string shown = text_of_value(*text);
  if (text->is_array()) {
    shown.clear();
    for (const auto& word : *text) shown += (shown.empty() ? "" : " ") + text_of_value(word);
  }
  if (data.text_pair_column && row.contains(*data.text_pair_column))
    shown += " / " + text_of_value(row[*data.text_pair_column]);
  return shown;
}

// The texts that count as right answers; empty if there is none.
std::vector<std::string> answers_of(const json& value) {
  const json* texts = value.is_object() && value.contains("text") ? &value["text"] : &value;
  std::vector<std::string> answers;
  if (texts->is_string()) return {texts->get<std::string>()};
  if (!texts->is_array()) return {};
  for (const auto& one : *texts) {
    const json* text = one.is_object() && one.contains("text") ? &one["text"] : &one;
    if (text->is_string()) answers.push_back(text->get<std::string>());
  }
  return answers;
}

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const auto& text : texts) all += (all.empty() ? "" : ", ") + text;
  return all;
}

std::vector<std::string> names_in(const json& list, const std::vector<std::string>& names) {
  std::vector<std::string> found;
  if (list.is_array())
    for (const auto& value : list) found.push_back(value.is_null() ? "" : name_of_label(value, names));
  return found;
}

void judge_choice(const json& prediction, bool is_right, JudgedPrediction& judged) {
  const auto score = prediction.find("score");
  const double certainty = score != prediction.end() && score->is_number() ? score->get<double>() : 0;
  if (certainty > 0) judged.score = json(std::round(certainty * 1e4) / 1e4).dump();
  judged.is_wrong = !is_right;
  judged.badness = is_right ? 1 - certainty : 1 + certainty;
}

// Elements at which two lists differ, including those that only one of them has.
size_t differences(const std::vector<std::string>& one, const std::vector<std::string>& other) {
  size_t count = std::max(one.size(), other.size()) - std::min(one.size(), other.size());
  for (size_t i = 0; i < std::min(one.size(), other.size()); ++i) count += one[i] != other[i];
  return count;
}

// Throws DataError if the record says that the predictions in a directory were made for other files.
void require_predictions_of(const std::vector<DataFile>& files, const std::string& directory) {
  const std::string path = cat(directory, "/", kPredictedDataFile);
  if (!std::filesystem::exists(path)) return;
  const json record = read_data_json(path);
  const JsonValue root(record, path);
  if (root.text("digest", "") == digest_of_contents(files)) return;
  std::string names;
  if (root.has("files"))
    for (const JsonValue& name : root.at("files").items()) names += (names.empty() ? "" : ", ") + name.text();
  throw DataError(cat(directory, "/predictions.jsonl was made from data other than the run's: ", names));
}

}  // namespace

std::optional<JudgedPrediction> judged(const json& prediction, const json& row, const Config& config,
                                       const std::vector<std::string>& names) {
  JudgedPrediction result{.text = shortened(text_of_row(row, config))};
  if (prediction.contains("answer")) {
    const json* given = column_among(row, {config.data.answers_column});
    if (!given) return {};
    const auto answers = answers_of(*given);
    const std::string answer = text_of_value(prediction["answer"]);
    result.expected = answers.empty() ? "(no answer)" : shortened(joined(answers));
    result.predicted = answer.empty() ? "(no answer)" : shortened(answer);
    judge_choice(prediction, answers.empty() ? answer.empty() : std::ranges::find(answers, answer) != answers.end(),
                 result);
    return result;
  }
  const json* label = column_among(row, label_columns(config.data));
  if (!label) return {};
  if (prediction.contains("label")) {
    result.expected = name_of_label(*label, names);
    result.predicted = text_of_value(prediction["label"]);
    judge_choice(prediction, result.expected == result.predicted, result);
    return result;
  }
  if (prediction.contains("tags") || prediction.contains("labels")) {
    auto expected = names_in(*label, names);
    auto predicted = names_in(prediction.contains("tags") ? prediction["tags"] : prediction["labels"], names);
    if (prediction.contains("labels")) {
      std::ranges::sort(expected);
      std::ranges::sort(predicted);
    }
    result.badness = differences(expected, predicted);
    result.is_wrong = result.badness > 0;
    result.expected = shortened(joined(expected));
    result.predicted = shortened(joined(predicted));
    return result;
  }
  const auto score = prediction.find("score");
  if (score == prediction.end() || !score->is_number()) return {};
  const std::string number = label_text(*label);
  char* end = nullptr;
  const double expected = std::strtod(number.c_str(), &end);
  if (number.empty() || *end != 0) return {};
  result.badness = std::abs(score->get<double>() - expected);
  result.expected = number;
  result.predicted = json(*score).dump();
  return result;
}

std::optional<PredictionReport> read_predictions(RunHistory& run) {
  const std::string path = run.directory + "/predictions.jsonl";
  std::ifstream lines(path);
  if (!lines) return {};
  const DataOptions& data = run.config.data;
  PredictionReport report;
  try {
    if (data.max_samples_seed) throw DataError("their rows were chosen at random (data.max_samples_seed)");
    const auto names = names_of_labels(run.config);
    std::string line;
    bool is_over = false;
    const DataPart part = data.test.empty() ? DataPart::validation : DataPart::test;
    const auto files = task_files(run.config, part, paths_of(run.config, part));
    require_predictions_of(files, run.directory);
    for (const auto& file : files) {
      const auto rows = open_any_rows(file);
      for (DataRow row; !is_over && rows->next(row);) {
        is_over = !std::getline(lines, line);
        if (is_over) break;
        const json prediction = parse_data_json(line, cat(path, ":", ++report.count));
        auto one = judged(prediction, row.columns, run.config, names);
        if (!one) continue;
        one->row = report.count;
        report.wrong += one->is_wrong;
        report.worst.push_back(std::move(*one));
        if (report.worst.size() < 4 * kMostWorst) continue;
        std::ranges::stable_sort(report.worst, std::greater(), &JudgedPrediction::badness);
        report.worst.resize(kMostWorst);
      }
    }
    if (!is_over && std::getline(lines, line))
      throw DataError(cat(path, " has more predictions than the run's data has rows, so they belong to other data"));
  } catch (const Error& error) {
    run.notes.push_back(cat("predictions: ", error.what()));
    return {};
  }
  std::ranges::stable_sort(report.worst, std::greater(), &JudgedPrediction::badness);
  report.worst.resize(std::min(report.worst.size(), kMostWorst));
  return report;
}

}  // namespace shardline
