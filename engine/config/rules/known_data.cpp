#include "engine/config/rules/known_data.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>

namespace shardline {

const KnownData& known_data(DataName name) {
  const std::vector<std::string> entails = {"entailment", "not_entailment"};
  static const std::map<DataName, KnownData> all = {
      {DataName::cola,
       {.text = {"sentence"},
        .label = {"label"},
        .labels = {"unacceptable", "acceptable"},
        .metrics = {"matthews_correlation"},
        .columns = {"source", "label", "star", "sentence"}}},
      {DataName::mnli,
       {.text = {"premise", "sentence1"},
        .pair = {"hypothesis", "sentence2"},
        .label = {"label", "gold_label"},
        .labels = {"entailment", "neutral", "contradiction"},
        .metrics = {"accuracy"}}},
      {DataName::mrpc,
       {.text = {"sentence1", "#1 String"},
        .pair = {"sentence2", "#2 String"},
        .label = {"label", "Quality"},
        .labels = {"not_equivalent", "equivalent"},
        .metrics = {"accuracy", "f1"}}},
      {DataName::qnli,
       {.text = {"question"}, .pair = {"sentence"}, .label = {"label"}, .labels = entails, .metrics = {"accuracy"}}},
      {DataName::qqp,
       {.text = {"question1"},
        .pair = {"question2"},
        .label = {"label", "is_duplicate"},
        .labels = {"not_duplicate", "duplicate"},
        .metrics = {"accuracy", "f1"}}},
      {DataName::rte,
       {.text = {"sentence1"}, .pair = {"sentence2"}, .label = {"label"}, .labels = entails, .metrics = {"accuracy"}}},
      {DataName::sst2,
       {.text = {"sentence"}, .label = {"label"}, .labels = {"negative", "positive"}, .metrics = {"accuracy"}}},
      {DataName::stsb,
       {.text = {"sentence1"},
        .pair = {"sentence2"},
        .label = {"label", "score"},
        .metrics = {"pearson", "spearmanr"}}},
      {DataName::wnli,
       {.text = {"sentence1"},
        .pair = {"sentence2"},
        .label = {"label"},
        .labels = {"not_entailment", "entailment"},
        .metrics = {"accuracy"}}},
      {DataName::amazon_polarity,
       {.text = {"content"},
        .label = {"label"},
        .labels = {"negative", "positive"},
        .metrics = {"accuracy"},
        .columns = {"label", "title", "content"},
        .labels_in_csv = {"1", "2"}}},
  };
  return all.at(name);
}

std::vector<std::string> mismatched_paths(const DataOptions& data) {
  namespace fs = std::filesystem;
  // A file contains only one set, and so does a folder in which `datasets` has saved one.
  const auto is_one_set = [](const std::string& path) {
    std::error_code ignored;
    const auto holds = [&](const char* file) { return fs::exists(fs::path(path) / file, ignored); };
    return fs::is_regular_file(path, ignored) || (holds("state.json") && holds("dataset_info.json"));
  };
  std::vector<std::string> paths = data.validation_mismatched;
  if (paths.empty() && data.task_name == DataName::mnli)
    std::ranges::copy_if(data.validation, std::back_inserter(paths), std::not_fn(is_one_set));
  return paths;
}

}  // namespace shardline
