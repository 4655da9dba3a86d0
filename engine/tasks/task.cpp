#include "engine/tasks/task.h"

#include <algorithm>
#include <map>

#include "core/error.h"
#include "engine/tasks/completions.h"
#include "engine/tasks/masked_lm.h"
#include "engine/tasks/question_answering.h"
#include "engine/tasks/seq2seq.h"
#include "engine/tasks/sequence_classification.h"
#include "engine/tasks/token_classification.h"

namespace shardline {

namespace {

// Tasks by name; shardline's own come first.
std::map<std::string, TaskFactory>& factories() {
  static std::map<std::string, TaskFactory> all = {
      {kCausalLm,
       [](const auto& config, const auto&, const auto& tokenizer) { return completions(config, tokenizer); }},
      {kMaskedLm, [](const auto& config, const auto&, const auto& tokenizer) { return masked_lm(config, tokenizer); }},
      {kSequenceClassification, sequence_classification},
      {kTokenClassification, token_classification},
      {kQuestionAnswering,
       [](const auto& config, const auto&, const auto& tokenizer) { return question_answering(config, tokenizer); }},
      {kSeq2SeqLm,
       [](const auto& config, const auto&, const auto& tokenizer) { return seq2seq_lm(config, tokenizer); }}};
  return all;
}

struct NamedMetric {
  std::string name;
  Metric compute;
};
std::map<std::string, std::vector<NamedMetric>>& added_metrics() {
  static std::map<std::string, std::vector<NamedMetric>> by_task;
  return by_task;
}

}  // namespace

void add_task(const std::string& name, TaskTraits traits, TaskFactory make) {
  if (!task_traits().emplace(name, std::move(traits)).second)
    throw ConfigError(cat("there is already a task \"", name, "\"; give the new one another name"));
  factories().emplace(name, std::move(make));
}

void add_metric(const std::string& task, const std::string& name, Metric metric) {
  const auto traits = task_traits().find(task);
  if (traits == task_traits().end())
    throw ConfigError(cat("the metric \"", name, "\" is for the task \"", task, "\", which has not been added"));
  auto& [head, own, added] = traits->second;
  const auto has = [&](const auto& names) { return std::ranges::find(names, name) != names.end(); };
  if (name == "loss" || has(own) || has(added))
    throw ConfigError(
        cat("the task \"", task, "\" already has a metric \"", name, "\"; give the new one another name"));
  added.push_back(name);
  added_metrics()[task].push_back({name, std::move(metric)});
}

void for_each_predicted_row(const Predicted& predicted, const std::function<void(const DataRow&, int64_t first)>& use) {
  const Examples& data = predicted.data;
  int64_t index = 0, next = 0;  // the row's number, and the place of its first example
  for_each_row(predicted.files, [&](const DataRow& row, int64_t) {
    const int64_t first = next;
    while (next < data.size() && data.set->row(data[next]) == index) ++next;
    if (next > first) use(row, first);
    ++index;
  });
}

MetricValues all_metrics(const std::string& name_of_task, const LabelledTask& task, const Predicted& predicted) {
  MetricValues values = task.metrics(predicted);
  for (const auto& [name, compute] : added_metrics()[name_of_task]) values.emplace_back(name, compute(predicted));
  return values;
}

bool reads_text(const Config& config) {
  return config.task == kCausalLm && !config.data.completion_only_loss;
}

std::unique_ptr<LabelledTask> make_task(const Config& config, const HeadChoice& head, const TokenizerPtr& tokenizer) {
  return reads_text(config) ? nullptr : factories().at(config.task)(config, head, tokenizer);
}

}  // namespace shardline
