#include "engine/config/rules/model_rules.h"

#include "core/error.h"
#include "core/files/json_text.h"
#include "core/files/regular_file.h"

namespace shardline {

HeadChoice head_choice(Task task) {
  using Kind = HeadChoice::Kind;
  switch (task) {
    case Task::causal_lm:
      return {.kind = Kind::causal_lm};
    case Task::masked_lm:
      return {.kind = Kind::masked_lm};
    case Task::sequence_classification:
      return {.kind = Kind::sequence_classification};
    case Task::token_classification:
      return {.kind = Kind::token_classification};
    case Task::question_answering:
      return {.kind = Kind::question_answering};
  }
  SL_ASSERT(false, "no such task");
}

HeadChoice head_choice(const Config& config) {
  HeadChoice head = head_choice(config.task);
  if (config.task == Task::masked_lm) head.labelled_share = config.data.mlm_probability;
  return head;
}

Task task_of_directory(const std::string& directory) {
  nlohmann::json file;
  try {
    file = json_in_text(read_regular_file(directory + "/config.json"));
  } catch (const DataError&) {  // opening the model reports it
    return Task::causal_lm;
  }
  const auto classes = file.is_object() ? file.value("architectures", nlohmann::json()) : nlohmann::json();
  if (!classes.is_array() || classes.empty() || !classes[0].is_string()) return Task::causal_lm;
  const auto kind = kind_of_class(classes[0].get<std::string>());
  for (const auto& word : kWords<Task>)
    if (kind == head_choice(word.choice).kind) return word.choice;
  return Task::causal_lm;
}

std::optional<HfModel> described_model(const ModelOptions& options, const HeadChoice& head) {
  if (options.path.empty() && options.config.empty()) return {};
  nlohmann::json file = nlohmann::json::object();
  if (!options.path.empty()) {
    try {
      file = json_in_text(read_regular_file(options.path + "/config.json"));
    } catch (const DataError&) {  // opening the model reports it
      return {};
    }
    if (!file.is_object()) return {};
  }
  return read_hf_model(file, options.config, head);
}

}  // namespace shardline
