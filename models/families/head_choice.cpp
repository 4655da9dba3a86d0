#include "models/families/head_choice.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/enum_array.h"
#include "core/error.h"
#include "models/files/hf_config_reader.h"

namespace shardline {
namespace {

using nlohmann::json;
using Kind = HeadChoice::Kind;
using Problem = HeadChoice::Problem;

constexpr EnumArray<Kind, const char*, 6> kTasks = {
    kCausalLm, kMaskedLm, kSequenceClassification, kTokenClassification, kQuestionAnswering, kSeq2SeqLm};
constexpr std::array kKinds = {
    Kind::causal_lm,          Kind::masked_lm, Kind::sequence_classification, Kind::token_classification,
    Kind::question_answering, Kind::seq2seq_lm};
constexpr EnumArray<Problem, const char*, 3> kProblems = {"single_label_classification", "multi_label_classification",
                                                          "regression"};

bool has_labels(const HeadChoice& head) {
  return head.kind != Kind::causal_lm && head.kind != Kind::masked_lm && head.kind != Kind::seq2seq_lm;
}

// The names in id2label, {"0": name, ...}; empty unless it names the labels 0, 1, ...
std::vector<std::string> names_in(const json& id2label) {
  std::vector<std::string> names;
  for (size_t i = 0; i < id2label.size(); ++i) {
    const auto name = id2label.find(std::to_string(i));
    if (name == id2label.end() || !name->is_string()) return {};
    names.push_back(name->get<std::string>());
  }
  return names;
}

std::vector<std::string> default_names(int64_t labels) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < labels; ++i) names.push_back(cat("LABEL_", i));
  return names;
}

void read_labels(HfConfigReader& read, HeadChoice& head) {
  constexpr int64_t kDefault = 2, kMost = 1 << 20;
  json id2label = nullptr, label2id = nullptr, count = nullptr;
  read.any("id2label", or_null(json_object()), id2label);
  read.any("label2id", or_null(json_object()), label2id);
  read.any("num_labels", or_null(json_integer(1, kMost)), count);
  if (id2label.is_object() && id2label.size() > kMost) {
    read.complain({"id2label"}, cat("must name at most ", kMost, " labels"));
    return;
  }
  const auto own = names_in(id2label.is_null() ? json::object() : id2label);
  if (id2label.is_object() && !id2label.empty() && own.empty())
    read.complain({"id2label"}, "must map \"0\", \"1\", ... to strings, the names of the labels");
  if (head.kind == Kind::question_answering) head.labels = 2;  // the first and the last row of the answer
  if (head.labels == 0) head.labels = head.names.size();
  if (head.labels == 0 && !count.is_null()) head.labels = count.get<int64_t>();
  if (head.labels == 0) head.labels = own.empty() ? kDefault : own.size();
  if (head.names.empty()) head.names = std::ssize(own) == head.labels ? own : default_names(head.labels);
}

void read_problem(HfConfigReader& read, HeadChoice& head) {
  json given = nullptr;
  read.any("problem_type", or_null(json_text()), given);
  std::optional<Problem> known;
  std::string words;
  for (const Problem problem : {Problem::single_label, Problem::multi_label, Problem::regression}) {
    if (given == kProblems[problem]) known = problem;
    words += cat(words.empty() ? "\"" : ", \"", kProblems[problem], '"');
  }
  if (!given.is_null() && !known) read.complain({"problem_type"}, cat("must be null or one of ", words));
  if (!head.problem) head.problem = known;
  if (!head.problem) head.problem = head.labels == 1 ? Problem::regression : Problem::single_label;
}

}  // namespace

const char* task_name(Kind kind) {
  return kTasks[kind];
}

std::optional<Kind> kind_of_task(const std::string& name) {
  for (const Kind kind : kKinds)
    if (name == task_name(kind)) return kind;
  return {};
}

std::optional<Kind> kind_of_class(const std::string& name) {
  static constexpr EnumArray<Kind, const char*, 6> endings = {"ForCausalLM",
                                                              "ForMaskedLM",
                                                              "ForSequenceClassification",
                                                              "ForTokenClassification",
                                                              "ForQuestionAnswering",
                                                              "ForConditionalGeneration"};
  for (const Kind kind : kKinds)
    if (name.ends_with(endings[kind])) return kind;
  return {};
}

double most_labelled_share(const HeadChoice& head, int64_t rows, int64_t segments) {
  if (rows == 0) return head.labelled_share;
  const double mean = std::max(head.labelled_share, 1.0 * segments / rows);
  const double variance = mean * (1 - mean) * head.labelled_together / rows;
  return std::min(1.0, mean + 6 * std::sqrt(variance));
}

void complete_head(HfConfigReader& read, HeadChoice& head) {
  if (has_labels(head)) {
    read_labels(read, head);
    SL_ASSERT(std::ssize(head.names) == head.labels, head.names.size(), " names of ", head.labels, " labels");
  } else {
    read.accept({"id2label", "label2id", "num_labels"});
  }
  if (head.kind == Kind::sequence_classification)
    read_problem(read, head);
  else
    read.accept({"problem_type"});
}

void name_labels(const json& keys, HeadChoice& head) {
  const HeadChoice known = head;
  const json none = json::object();
  HfConfigReader read(none, keys);
  complete_head(read, head);
  read.accept({"decoder_start_token_id"});
  read.finish();
  for (const auto& mistake : read.mistakes())
    throw ConfigError(cat("/model/config/", mistake.key, ": ", mistake.rule, "; ", mistake.advice));
  if (keys.contains("num_labels") && keys["num_labels"] != known.labels)
    throw ConfigError(cat("/model/config/num_labels: is ", keys["num_labels"].dump(), ", but the program has ",
                          known.labels, " labels; leave it out, or export the program with as many labels"));
  if (std::ssize(head.names) != head.labels ||
      (!keys.value("id2label", none).empty() && head.names != names_in(keys["id2label"])))
    throw ConfigError(cat("/model/config/id2label: names ", keys["id2label"].size(),
                          " labels, which are those of the data unless the config names them, but the program has ",
                          head.labels,
                          "; name all of them, set num_labels if the data has only some of them, or export the program "
                          "with as many labels"));
  if (known.problem && keys.contains("problem_type") && keys["problem_type"] != kProblems[*known.problem])
    throw ConfigError(cat("/model/config/problem_type: is ", keys["problem_type"].dump(),
                          ", but the program's loss is that of \"", kProblems[*known.problem],
                          "\"; give data with such labels, or export the program with another loss"));
}

void put_head(json& config, const HeadChoice& head, const std::string& head_class) {
  if (!head_class.empty()) config["architectures"] = {head_class};
  if (!has_labels(head)) return;
  json id2label = json::object(), label2id = json::object();
  for (int64_t i = 0; i < head.labels; ++i) {
    id2label[std::to_string(i)] = head.names[i];
    label2id[head.names[i]] = i;
  }
  config["id2label"] = id2label;
  config["label2id"] = label2id;
  config.erase("num_labels");  // the names determine it; a second, older number could contradict them
  if (head.problem) config["problem_type"] = kProblems[*head.problem];
}

}  // namespace shardline
